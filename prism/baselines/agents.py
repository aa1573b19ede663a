"""Deformable bi-level routing attention: moving agents gather from routed windows, tokens read the agents (DeBiFormer).

B images, H x W tokens of C channels, A x A' agents, G groups of channels whose agents move together, h heads.
Points are (x, y) in [-1, 1], as `grid_sample` takes them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prism.baselines.attention import attend
from prism.baselines.channels_last import ConvMlp, DepthwiseConv, crop, pad_to_multiple
from prism.baselines.routing import bi_level_attention, check_routing


def reference_points(height: int, width: int, like: Tensor) -> Tensor:
    """The centres of A x A' equal cells: (A, A', 2). They lie at 2 (i + 0.5) / A - 1."""
    y = (torch.arange(height, device=like.device, dtype=like.dtype) + 0.5) * (2 / height) - 1
    x = (torch.arange(width, device=like.device, dtype=like.dtype) + 0.5) * (2 / width) - 1
    return torch.stack([x.expand(height, -1), y[:, None].expand(-1, width)], dim=-1)


def query_points(height: int, width: int, like: Tensor) -> Tensor:
    """A grid that includes the borders, unlike the agents': (H, W, 2). Points lie at 2 i / (H - 1) - 1."""
    y = torch.linspace(-1, 1, height, device=like.device, dtype=like.dtype)
    x = torch.linspace(-1, 1, width, device=like.device, dtype=like.dtype)
    return torch.stack([x.expand(height, -1), y[:, None].expand(-1, width)], dim=-1)


def sample_at(x: Tensor, points: Tensor) -> Tensor:
    """Bilinear samples of (B, H, W, C), each group of channels at its own points (B, G, A, A', 2): (B, A, A', C)."""
    groups = points.shape[1]
    maps = x.unflatten(3, (groups, -1)).permute(0, 3, 4, 1, 2).flatten(0, 1)  # (B * G, C / G, H, W)
    found = F.grid_sample(maps.to(points.dtype), points.flatten(0, 1), align_corners=True)
    return found.unflatten(0, (-1, groups)).permute(0, 3, 4, 1, 2).flatten(3).to(x.dtype)


def relative_bias(table: Tensor, queries: Tensor, agents: Tensor) -> Tensor:
    """The table (h, T, T') read at half of each displacement from an agent to a query: (B, h, N, A * A').

    `queries` are (N, 2) and `agents` (B, G, A * A', 2); the h / G heads of a group share its points.
    """
    batch, groups, count, _ = agents.shape
    displacements = (queries[:, None] - agents.transpose(0, 1)[:, :, None]) / 2  # (G, B, N, A * A', 2)
    tables = table.unflatten(0, (groups, -1)).to(displacements.dtype)
    found = F.grid_sample(tables, displacements.flatten(1, 2), align_corners=True)  # (G, h / G, B * N, A * A')
    return found.reshape(groups, tables.shape[1], batch, queries.shape[0], count).permute(2, 0, 1, 3, 4).flatten(1, 2)


class Offsets(nn.Module):
    """How far the agents of each group move: one number per agent, added to both of its coordinates, as published."""

    def __init__(self, dim: int, groups: int, kernel: int, stride: int):
        super().__init__()
        self.groups = groups
        self.dwconv = DepthwiseConv(dim // groups, kernel, stride, bias=False)  # shared by the groups
        self.norm = nn.LayerNorm(dim // groups)
        self.act = nn.GELU()
        self.proj = nn.Linear(dim // groups, 1, bias=False)

    def forward(self, queries: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, G, A, A', 1)"""
        x = queries.unflatten(3, (self.groups, -1)).permute(0, 3, 1, 2, 4).flatten(0, 1)
        return self.proj(self.act(self.norm(self.dwconv(x)))).unflatten(0, (-1, self.groups))


class DeformableRoutingAttention(nn.Module):
    """Agents start on a regular grid, move, and collect from the windows they are routed to; every token then attends
    to all agents, with a bias by relative position. `query_size` sets the size of the table of biases."""

    def __init__(
        self,
        dim: int,
        heads: int,
        groups: int,
        windows: int,
        routed: int,
        offset_kernel: int,
        offset_stride: int,
        query_size: tuple[int, int],
        mlp_ratio: float = 3.0,
        lepe_kernel: int = 5,
    ):
        super().__init__()
        check_routing(dim, heads, windows, routed)
        if heads % groups or dim % groups:
            raise ValueError(f"{heads} heads of {dim} channels do not divide into {groups} groups")
        self.heads, self.windows, self.routed, self.scale = heads, windows, routed, dim**-0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.offsets = Offsets(dim, groups, offset_kernel, offset_stride)
        self.agent_query = nn.Linear(dim, dim)
        self.lepe = DepthwiseConv(dim, lepe_kernel, offset_stride)  # at the agents' resolution
        self.agent_proj = nn.Linear(dim, dim)
        self.agent_norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.agent_mlp = ConvMlp(dim, int(mlp_ratio * dim))
        self.agent_norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.agent_key = nn.Linear(dim, dim)
        self.agent_value = nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.empty(heads, 2 * query_size[0] - 1, 2 * query_size[1] - 1))
        self.proj = nn.Linear(dim, dim)
        nn.init.trunc_normal_(self.bias_table, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        x = pad_to_multiple(x, self.windows)  # before everything: the grid of queries includes the padding
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        points = self.agent_points(q)  # (B, G, A, A', 2)
        agents = pad_to_multiple(sample_at(x, points), self.windows)
        local = pad_to_multiple(self.lepe(v), self.windows)
        # Agents of the padding stay at the centre of the image and take part like all others.
        points = pad_to_multiple(points.flatten(0, 1), self.windows).unflatten(0, points.shape[:2])

        found = bi_level_attention(self.agent_query(agents), k, v, self.windows, self.routed, self.heads)
        agents = agents + self.agent_proj(found + local)
        agents = agents + self.agent_mlp(self.agent_norm1(agents))
        agents = self.agent_norm2(agents).flatten(1, 2)  # (B, A * A', C)

        places = query_points(x.shape[1], x.shape[2], points).flatten(0, 1)
        bias = relative_bias(self.bias_table, places, points.flatten(2, 3))
        out = attend(q.flatten(1, 2), self.agent_key(agents), self.agent_value(agents), self.heads, self.scale, bias)
        return crop(self.proj(out).unflatten(1, x.shape[1:3]), height, width)

    def agent_points(self, queries: Tensor) -> Tensor:
        """Where the agents are after their move; none leaves the image."""
        offsets = self.offsets(queries)
        if offsets.dtype in (torch.float16, torch.bfloat16):  # too coarse for positions
            offsets = offsets.float()
        return (reference_points(*offsets.shape[2:4], like=offsets) + offsets).clamp(-1, 1)
