"""PaCa-ViT's equations against their published description."""

import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from prism.baselines.channels_last import ConvMlp
from prism.baselines.paca import Block, Clustering, PacaStage
from tests.baselines.plain import depthwise, layer_norm, multi_head, randomised


def maps(dim: int = 12) -> Tensor:
    return torch.randn(2, 4, 5, dim, dtype=torch.float64)


def plain_assignment(clustering: Clustering, x: Tensor) -> Tensor:
    x = F.gelu(depthwise(x, clustering.dwconv))
    x = F.gelu(x @ clustering.fc1.weight.T + clustering.fc1.bias) @ clustering.fc2.weight.T
    weights = x.reshape(2, 20, -1).exp()
    return (weights / weights.sum(dim=1, keepdim=True)).transpose(1, 2)


def plain_block(block: Block, x: Tensor, assignment: Tensor | None) -> Tensor:
    dim, attn = x.shape[-1], block.attn
    u = layer_norm(x, block.norm1, 1e-6).reshape(2, 20, dim)
    sources = u if assignment is None else layer_norm(assignment @ u, attn.cluster_norm, 1e-6)
    q, k, v = attn.q(u), attn.k(sources), attn.v(sources)
    x = x + attn.proj(multi_head(q, k, v, attn.heads, (dim // attn.heads) ** -0.5)).reshape(x.shape)
    hidden = layer_norm(x, block.norm2, 1e-6) @ block.mlp.fc1.weight.T + block.mlp.fc1.bias
    hidden = F.gelu(hidden + depthwise(hidden, block.mlp.dwconv))
    return x + hidden @ block.mlp.fc2.weight.T + block.mlp.fc2.bias


def test_a_cluster_is_a_weighted_mean_of_patches():
    clustering, x = randomised(Clustering(12, 3)), maps()
    assignment = clustering(x)
    assert assignment.shape == (2, 3, 20)
    torch.testing.assert_close(assignment.sum(dim=2), torch.ones(2, 3, dtype=torch.float64))
    torch.testing.assert_close(assignment, plain_assignment(clustering, x))
    assert clustering.fc2.bias is None


def test_a_stage_assigns_once_and_each_block_clusters_its_own_patches():
    blocks = [Block(12, 3, clusters=4 if first else 0, clustered=True, mlp_ratio=2, drop_path=0) for first in (1, 0)]
    stage = randomised(PacaStage(torch.nn.Identity(), blocks))
    x = maps()
    assignment = plain_assignment(blocks[0].clustering, layer_norm(x, blocks[0].norm1, 1e-6))
    expected = plain_block(blocks[1], plain_block(blocks[0], x, assignment), assignment)
    torch.testing.assert_close(stage.run_blocks(x), expected)
    assert blocks[1].clustering is None


def test_without_clusters_patches_attend_to_patches():
    block = randomised(Block(12, 3, clusters=0, clustered=False, mlp_ratio=2, drop_path=0))
    x = maps()
    found, assignment = block(x, None)
    torch.testing.assert_close(found, plain_block(block, x, None))
    assert assignment is None
    assert block.attn.cluster_norm is None


def test_neighbours_are_added_before_the_activation():
    mlp = randomised(ConvMlp(2, 3))
    x = maps(2)
    hidden = x @ mlp.fc1.weight.T + mlp.fc1.bias
    expected = F.gelu(hidden + depthwise(hidden, mlp.dwconv)) @ mlp.fc2.weight.T + mlp.fc2.bias
    torch.testing.assert_close(mlp(x), expected)


def test_the_norm_of_a_stage_feeds_the_next_one():
    model = randomised(timm.create_model("pacavit_nano"))
    image = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    first = model.stages[0]
    x = first.run_blocks(first.downsample(image).permute(0, 2, 3, 1))
    normed = layer_norm(x, first.norm, 1e-6).permute(0, 3, 1, 2)
    maps = model.forward_intermediates(image, intermediates_only=True)
    torch.testing.assert_close(maps[0], normed)
    torch.testing.assert_close(maps[1], model.stages[1](normed))


def test_the_stem_is_two_convolutions_with_nothing_in_between():
    model = randomised(timm.create_model("pacavit_nano"))
    image, (first, second) = torch.randn(1, 3, 32, 32, dtype=torch.float64), model.stages[0].downsample.proj
    x = F.conv2d(image, first.weight, first.bias, stride=2, padding=1)
    x = F.conv2d(x, second.weight, second.bias, stride=2, padding=1)
    norm = model.stages[0].downsample.norm
    expected = layer_norm(x.permute(0, 2, 3, 1), norm, 1e-6).permute(0, 3, 1, 2)
    torch.testing.assert_close(model.stages[0].downsample(image), expected)
