"""BiXT's equations against their published description."""

import timm
import torch
import torch.nn.functional as F
from timm.models.xcit import PositionalEncodingFourier
from torch import nn

from prism.baselines.latents import CrossBlock, LatentBlock, State, exchange, fourier_positions
from tests.baselines.plain import layer_norm, multi_head, randomised


def states(dim: int = 12) -> State:
    return State(torch.randn(2, 3, dim, dtype=torch.float64), torch.randn(2, 5, dim, dtype=torch.float64))


def test_one_similarity_serves_both_directions():
    references, values = states(), states()
    found = exchange(references, values, heads=3)
    for image in range(2):
        for head in range(3):
            run = slice(4 * head, 4 * head + 4)
            r_l, r_p = references.latents[image, :, run], references.tokens[image, :, run]
            v_l, v_p = values.latents[image, :, run], values.tokens[image, :, run]
            similarity = torch.stack([torch.stack([(a @ b) / 2 for b in r_p]) for a in r_l])  # 1 / sqrt(4)
            over_tokens = similarity.exp() / similarity.exp().sum(dim=1, keepdim=True)
            over_latents = similarity.exp() / similarity.exp().sum(dim=0, keepdim=True)
            torch.testing.assert_close(found.latents[image, :, run], over_tokens @ v_p)
            torch.testing.assert_close(found.tokens[image, :, run], over_latents.T @ v_l)


def test_both_sides_are_updated_from_the_state_before():
    block, (latents, tokens) = randomised(CrossBlock(12, 3, 2.0, 0.0, both_ways=True)), states()
    r_l, v_l = block.rv_latents(layer_norm(latents, block.norm1_latents, 1e-6)).split(12, dim=-1)
    r_p, v_p = block.rv_tokens(layer_norm(tokens, block.norm1_tokens, 1e-6)).split(12, dim=-1)
    new_latents = latents + block.proj_latents(multi_head(r_l, r_p, v_p, 3, 4**-0.5))
    new_tokens = tokens + block.proj_tokens(multi_head(r_p, r_l, v_l, 3, 4**-0.5))
    new_latents = new_latents + block.mlp_latents(layer_norm(new_latents, block.norm2_latents, 1e-6))
    new_tokens = new_tokens + block.mlp_tokens(layer_norm(new_tokens, block.norm2_tokens, 1e-6))
    found = block(latents, tokens)
    torch.testing.assert_close(found.latents, new_latents)
    torch.testing.assert_close(found.tokens, new_tokens)


def test_the_last_block_only_updates_latents():
    block, (latents, tokens) = randomised(CrossBlock(12, 3, 2.0, 0.0, both_ways=False)), states()
    r_l = block.r_latents(layer_norm(latents, block.norm1_latents, 1e-6))
    r_p, v_p = block.rv_tokens(layer_norm(tokens, block.norm1_tokens, 1e-6)).split(12, dim=-1)
    expected = latents + block.proj_latents(multi_head(r_l, r_p, v_p, 3, 4**-0.5))
    expected = expected + block.mlp_latents(layer_norm(expected, block.norm2_latents, 1e-6))
    found = block(latents, tokens)
    torch.testing.assert_close(found.latents, expected)
    assert torch.equal(found.tokens, tokens)


def test_latents_attend_to_each_other_as_in_torch():
    block, latents = randomised(LatentBlock(12, 3, 2.0, 0.0)), states().latents
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(block.qkv.weight)
        theirs.in_proj_bias.copy_(block.qkv.bias)
        theirs.out_proj.weight.copy_(block.proj.weight)
        theirs.out_proj.bias.copy_(block.proj.bias)
    normed = layer_norm(latents, block.norm1, 1e-6)
    expected = latents + theirs(normed, normed, normed)[0]
    hidden = F.gelu(layer_norm(expected, block.norm2, 1e-6) @ block.mlp.fc1.weight.T + block.mlp.fc1.bias)
    torch.testing.assert_close(block(latents), expected + hidden @ block.mlp.fc2.weight.T + block.mlp.fc2.bias)


def test_positions_are_those_of_xcit():
    """Rows before columns, sine and cosine interleaved, and to the bit: it is float32 that is published."""
    theirs = PositionalEncodingFourier(32, 64)
    nn.init.dirac_(theirs.token_projection.weight)
    nn.init.zeros_(theirs.token_projection.bias)
    for height, width in [(14, 14), (3, 5)]:
        ours = fourier_positions(height, width, 32, torch.device("cpu"))
        assert ours.shape == (height, width, 64)
        torch.testing.assert_close(ours.permute(2, 0, 1), theirs(1, height, width)[0], rtol=0, atol=0)


def test_the_mean_of_latents_is_normed_and_not_the_latents():
    model = randomised(timm.create_model("bixt_nano", num_classes=5, depth=2))
    latents = 3 + torch.randn(2, 32, 96, dtype=torch.float64) * torch.rand(1, 32, 1, dtype=torch.float64)
    pooled = layer_norm(latents.mean(dim=1), model.fc_norm, 1e-6)
    torch.testing.assert_close(model.forward_head(latents), pooled @ model.head.weight.T + model.head.bias)


def test_tokens_carry_a_position_and_latents_do_not():
    model = randomised(timm.create_model("bixt_nano", depth=2))
    (latents, tokens), size = model.start(torch.zeros(2, 3, 112, 112, dtype=torch.float64))
    assert size == (14, 14)
    assert torch.equal(latents, model.latents.expand(2, -1, -1))
    code = fourier_positions(14, 14, 32, torch.device("cpu")).double().reshape(196, 64)
    expected = model.patch_embed.bias + code @ model.position_proj.weight.T + model.position_proj.bias
    torch.testing.assert_close(tokens, expected.expand(2, -1, -1))
