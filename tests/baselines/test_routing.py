"""Bi-level routing attention against dense attention under a mask, as the published description has it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prism.baselines.biformer import Block, FullAttention
from prism.baselines.routing import (
    BiLevelRoutingAttention,
    bi_level_attention,
    choose_windows,
    from_windows,
    gather_windows,
    to_windows,
)
from tests.baselines.plain import depthwise, layer_norm, multi_head, randomised, window_of_each_token


def plain_routing_attention(module: BiLevelRoutingAttention, x: Tensor) -> Tensor:
    """Every token against every token, with a mask by windows."""
    batch, height, width, dim = x.shape
    side = module.windows
    x = F.pad(x, (0, 0, 0, -width % side, 0, -height % side))
    tall, wide = x.shape[1:3]
    q, k, v = (x.reshape(batch, tall * wide, dim) @ module.qkv.weight.T + module.qkv.bias).split(dim, dim=-1)
    window = window_of_each_token(tall, wide, side)
    masks = torch.zeros(batch, tall * wide, tall * wide, dtype=torch.bool)
    for image in range(batch):
        of_q = torch.stack([q[image, window == w].mean(0) for w in range(side**2)])
        of_k = torch.stack([k[image, window == w].mean(0) for w in range(side**2)])
        best = (of_q @ of_k.T * dim**-0.5).argsort(dim=-1, descending=True)[:, : module.routed]
        for token in range(tall * wide):
            masks[image, token] = torch.isin(window, best[window[token]])
    out = multi_head(q, k, v, module.heads, dim**-0.5, masks)
    local = depthwise(v.reshape(batch, tall, wide, dim), module.lepe)
    out = (out.reshape(batch, tall, wide, dim) + local) @ module.proj.weight.T + module.proj.bias
    return out[:, :height, :width]


@pytest.mark.parametrize("routed", [1, 3, 9])
@pytest.mark.parametrize("size", [(9, 9), (7, 10), (6, 3), (2, 2)])
def test_gathered_windows_are_a_mask_of_dense_attention(size: tuple[int, int], routed: int):
    """Also where sides are no multiples of the windows: padded tokens carry the bias and count as keys."""
    module = randomised(BiLevelRoutingAttention(12, heads=3, windows=3, routed=routed))
    x = torch.randn(2, *size, 12, dtype=torch.float64)
    torch.testing.assert_close(module(x), plain_routing_attention(module, x))


def test_the_scale_is_of_all_channels_not_of_a_head():
    q, k, v = torch.randn(3, 1, 4, 4, 8, dtype=torch.float64)
    found = bi_level_attention(q, k, v, per_side=2, count=4, heads=4)
    flat = [x.reshape(1, 16, 8) for x in (q, k, v)]
    torch.testing.assert_close(found.reshape(1, 16, 8), multi_head(*flat, heads=4, scale=8**-0.5))
    assert not torch.allclose(found.reshape(1, 16, 8), multi_head(*flat, heads=4, scale=2**-0.5))


def test_windows_are_chosen_over_all_channels_at_once():
    """Two heads prefer different windows; the sum of both decides, for both."""
    queries = torch.ones(1, 4, 1, 2)
    keys = torch.tensor([[5.0, 0.0], [0.0, 4.0], [3.0, 3.0], [0.0, 0.0]]).reshape(1, 4, 1, 2)
    assert choose_windows(queries, keys, 1).flatten().tolist() == [2, 2, 2, 2], "not even itself"


def test_choice_follows_the_mean_of_a_window():
    queries = torch.ones(1, 2, 1, 1)
    keys = torch.tensor([[9.0, -9.0], [1.0, 1.0]]).reshape(1, 2, 2, 1)
    assert choose_windows(queries, keys, 1).flatten().tolist() == [1, 1]


def test_windows_and_their_tokens_run_row_by_row():
    numbers = torch.arange(24.0).reshape(1, 4, 6, 1)
    windows = to_windows(numbers, 2)
    assert windows[0, 1].flatten().tolist() == [3, 4, 5, 9, 10, 11]
    assert windows[0, 2].flatten().tolist() == [12, 13, 14, 18, 19, 20]
    assert torch.equal(from_windows(windows, 2, 4, 6), numbers)


def test_windows_are_gathered_within_their_own_image():
    windows = torch.arange(8.0).reshape(2, 4, 1, 1)
    chosen = torch.tensor([[[0, 3]] * 4, [[2, 1]] * 4])
    gathered = gather_windows(windows, chosen)
    assert gathered[0, 0].flatten().tolist() == [0, 3]
    assert gathered[1, 2].flatten().tolist() == [6, 5]


def test_the_last_stage_attends_fully_and_convolves_its_input():
    """Not its values, as the routed stages do; and the scale is that of a head."""
    module = randomised(FullAttention(12, heads=3))
    x = torch.randn(2, 3, 5, 12, dtype=torch.float64)
    q, k, v = (x.reshape(2, 15, 12) @ module.qkv.weight.T).split(12, dim=-1)
    out = multi_head(q, k, v, heads=3, scale=4**-0.5).reshape(2, 3, 5, 12) + depthwise(x, module.lepe)
    torch.testing.assert_close(module(x), out @ module.proj.weight.T + module.proj.bias)
    assert module.qkv.bias is None


def test_a_block_adds_position_attention_and_mlp_in_turn():
    attention, mlp = randomised(FullAttention(8, heads=2)), randomised(nn.Linear(8, 8))
    block = randomised(Block(8, attention, mlp))
    x = torch.randn(1, 4, 4, 8, dtype=torch.float64)

    expected = x + depthwise(x, block.pos_embed)
    expected = expected + attention(layer_norm(expected, block.norm1, 1e-6))
    expected = expected + mlp(layer_norm(expected, block.norm2, 1e-6))
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(heads=3, windows=7, routed=50), "7 x 7 windows can choose 1 to 49 of them, got 50"),
        (dict(heads=3, windows=7, routed=0), "got 0"),
        (dict(heads=5, windows=7, routed=1), "12 channels do not divide into 5 heads"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, int], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        BiLevelRoutingAttention(12, **settings)
