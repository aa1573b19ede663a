"""Deformable routing attention against its published description, written out with loops."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prism.baselines.agents import DeformableRoutingAttention, query_points, reference_points, relative_bias, sample_at
from prism.baselines.channels_last import ConvMlp
from tests.baselines.plain import bilinear, depthwise, layer_norm, multi_head, randomised, window_of_each_token


def small(**settings) -> DeformableRoutingAttention:
    """Two heads and four channels per group."""
    defaults = dict(
        dim=8, heads=4, groups=2, windows=2, routed=2, offset_kernel=3, offset_stride=2, query_size=(4, 4), mlp_ratio=2
    )
    return randomised(DeformableRoutingAttention(**(defaults | settings)))


def plain_conv_mlp(mlp: ConvMlp, x: Tensor) -> Tensor:
    x = x @ mlp.fc1.weight.T + mlp.fc1.bias
    return F.gelu(x + depthwise(x, mlp.dwconv)) @ mlp.fc2.weight.T + mlp.fc2.bias


def plain_attention(module: DeformableRoutingAttention, u: Tensor) -> Tensor:
    """Steps 1 to 9 of the description, for one image (1, H, W, C)."""
    height, width, dim = u.shape[1:]
    side, groups = module.windows, module.offsets.groups
    per_group, heads_per_group = dim // groups, module.heads // groups

    def padded(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, -x.shape[2] % side, 0, -x.shape[1] % side))

    u = padded(u)
    tall, wide = u.shape[1:3]
    q, k, v = (u @ module.qkv.weight.T + module.qkv.bias).split(dim, dim=-1)

    points, sampled = [], []  # of each group: (A, A', 2) as (y, x), (A, A', C / G)
    for group in range(groups):
        run = slice(group * per_group, (group + 1) * per_group)
        hidden = F.gelu(layer_norm(depthwise(q[..., run], module.offsets.dwconv), module.offsets.norm, 1e-5))
        offset = (hidden @ module.offsets.proj.weight.T)[0, ..., 0]  # (A, A')
        rows, columns = offset.shape
        place = torch.zeros(rows, columns, 2, dtype=u.dtype)
        values = torch.zeros(rows, columns, per_group, dtype=u.dtype)
        for i in range(rows):
            for j in range(columns):
                y = 2 * (i + 0.5) / rows - 1 + offset[i, j].item()
                x = 2 * (j + 0.5) / columns - 1 + offset[i, j].item()
                y, x = min(max(y, -1), 1), min(max(x, -1), 1)
                place[i, j] = torch.tensor([y, x])
                values[i, j] = bilinear(u[0, ..., run].permute(2, 0, 1), y, x)
        points.append(padded(place[None])[0])
        sampled.append(values)
    agents = padded(torch.cat(sampled, dim=-1)[None])
    local = padded(depthwise(v, module.lepe))
    rows, columns = agents.shape[1:3]

    asked = (agents @ module.agent_query.weight.T + module.agent_query.bias).reshape(1, -1, dim)
    keys, values = k.reshape(1, -1, dim), v.reshape(1, -1, dim)
    of_agent, of_token = window_of_each_token(rows, columns, side), window_of_each_token(tall, wide, side)
    mask = torch.zeros(1, rows * columns, tall * wide, dtype=torch.bool)
    for w in range(side**2):
        mean = asked[0, of_agent == w].mean(0)
        scores = [(mean @ keys[0, of_token == other].mean(0)).item() for other in range(side**2)]
        best = sorted(range(side**2), key=lambda other: -scores[other])[: module.routed]
        mask[0, of_agent == w] = torch.isin(of_token, torch.tensor(best))
    z = multi_head(asked, keys, values, module.heads, dim**-0.5, mask).reshape(1, rows, columns, dim)
    z = agents + (z + local) @ module.agent_proj.weight.T + module.agent_proj.bias
    z = z + plain_conv_mlp(module.agent_mlp, layer_norm(z, module.agent_norm1, 1e-6))
    z = layer_norm(z, module.agent_norm2, 1e-6).reshape(1, -1, dim)

    bias = torch.zeros(1, module.heads, tall * wide, rows * columns, dtype=u.dtype)
    for head in range(module.heads):
        places = points[head // heads_per_group].reshape(-1, 2)
        for i in range(tall):
            for j in range(wide):
                for agent, (y, x) in enumerate(places.tolist()):
                    dy, dx = (2 * i / (tall - 1) - 1 - y) / 2, (2 * j / (wide - 1) - 1 - x) / 2
                    bias[0, head, i * wide + j, agent] = bilinear(module.bias_table[head : head + 1], dy, dx)[0]
    to_k = z @ module.agent_key.weight.T + module.agent_key.bias
    to_v = z @ module.agent_value.weight.T + module.agent_value.bias
    out = multi_head(q.reshape(1, -1, dim), to_k, to_v, module.heads, dim**-0.5, bias)
    out = (out @ module.proj.weight.T + module.proj.bias).reshape(1, tall, wide, dim)
    return out[:, :height, :width]


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        ((8, 8), {}),
        ((5, 7), {}),  # padded to 6 x 8, its 3 x 4 agents to 4 x 4
        ((4, 4), dict(offset_stride=1, routed=4)),  # the last stage: an agent per token, all windows
        ((6, 6), dict(offset_kernel=5, offset_stride=4, groups=1)),
    ],
)
@torch.no_grad()
def test_it_is_the_published_description(size: tuple[int, int], settings: dict[str, int]):
    module = small(**settings)
    images = torch.randn(2, *size, 8, dtype=torch.float64)
    expected = torch.cat([plain_attention(module, image[None]) for image in images])
    torch.testing.assert_close(module(images), expected)


def test_agents_start_at_centres_of_cells_and_queries_include_the_borders():
    like = torch.zeros((), dtype=torch.float64)
    agents, queries = reference_points(7, 2, like), query_points(7, 2, like)
    assert agents.shape == queries.shape == (7, 2, 2)
    torch.testing.assert_close(agents[:, 0, 1], torch.tensor([2 * (i + 0.5) / 7 - 1 for i in range(7)]).double())
    torch.testing.assert_close(agents[0, :, 0], torch.tensor([-0.5, 0.5]).double())
    torch.testing.assert_close(queries[:, 0, 1], torch.tensor([2 * i / 6 - 1 for i in range(7)]).double())
    torch.testing.assert_close(queries[0, :, 0], torch.tensor([-1.0, 1.0]).double())


def test_one_offset_moves_an_agent_in_both_directions_and_not_out_of_the_image():
    module, like = small(), torch.zeros((), dtype=torch.float64)
    queries = torch.randn(1, 8, 8, 8, dtype=torch.float64)
    offsets = module.offsets(queries)
    assert offsets.shape == (1, 2, 4, 4, 1), "one number per agent of a group"
    points = module.agent_points(queries)
    inside = (points.abs() < 1).all(dim=-1)
    moved = points - reference_points(4, 4, like)
    assert inside.any()
    assert (points.abs() <= 1).all()
    torch.testing.assert_close(moved[inside][:, 0], moved[inside][:, 1])
    torch.testing.assert_close(moved[inside][:, :1], offsets[inside])


def test_groups_sample_their_own_channels_at_their_own_points():
    maps = torch.arange(2 * 3.0).reshape(1, 2, 3, 1).repeat(1, 1, 1, 4)
    corners = torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).reshape(1, 2, 1, 1, 2)
    assert sample_at(maps, corners).flatten().tolist() == [0, 0, 5, 5]


def test_points_are_x_before_y():
    maps = torch.arange(2 * 3.0).reshape(1, 2, 3, 1)
    top_right = torch.tensor([1.0, -1.0]).reshape(1, 1, 1, 1, 2)
    assert sample_at(maps, top_right).item() == 2


def test_bias_is_read_at_half_the_displacement_from_agent_to_query():
    """The farthest pair is 2 apart and reads the border of the table; no displacement reads its middle."""
    table = torch.arange(25.0).reshape(1, 5, 5)
    agents = torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).reshape(1, 1, 2, 2)
    queries = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
    bias = relative_bias(table, queries, agents)
    assert bias.shape == (1, 1, 3, 2)
    assert bias[0, 0].tolist() == [[12.0, 0.0], [24.0, 12.0], [14.0, 2.0]]


def test_the_table_keeps_its_size_whatever_the_image():
    module = small(query_size=(4, 6))
    assert module.bias_table.shape == (4, 7, 11)
    assert module(torch.randn(1, 12, 9, 8, dtype=torch.float64)).shape == (1, 12, 9, 8)


def test_gradients_move_the_agents():
    module = small()
    module(torch.randn(1, 8, 8, 8, dtype=torch.float64)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in module.offsets.parameters())


def test_heads_that_do_not_divide_into_groups_are_named():
    with pytest.raises(ValueError, match="4 heads of 8 channels do not divide into 3 groups"):
        small(groups=3)
