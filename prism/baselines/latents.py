"""Latents and tokens that update each other from one similarity (BiXT).

B images, M latents, N = H x W tokens, C channels, h heads.
"""

import math
from typing import NamedTuple

import torch
from timm.layers import DropPath, Mlp
from torch import Tensor, nn

from prism.baselines.attention import attend, join_heads, split_heads


class State(NamedTuple):
    """What a layer takes and gives."""

    latents: Tensor  # (B, M, C)
    tokens: Tensor  # (B, N, C)


def exchange(references: State, values: State, heads: int) -> State:
    """Both directions from one similarity: latents take a mean of token values, tokens one of latent values."""
    latents, tokens = (split_heads(x, heads) for x in references)
    latent_values, token_values = (split_heads(x, heads) for x in values)
    similarity = latents * latents.shape[-1] ** -0.5 @ tokens.mT  # (B, h, M, N)
    to_latents = similarity.softmax(dim=-1) @ token_values
    to_tokens = similarity.mT.softmax(dim=-1) @ latent_values
    return State(join_heads(to_latents), join_heads(to_tokens))


def fourier_positions(height: int, width: int, channels: int, device: torch.device) -> Tensor:
    """Sines and cosines of the row, then of the column: (H, W, 2 * channels).

    In float32 whatever the model is in, as published: at the highest frequencies its rounding is part of the code.
    """
    index = torch.arange(channels, device=device)
    frequencies = 10000.0 ** (2 * (index // 2).float() / channels)
    waves = []
    for side in (height, width):
        place = torch.arange(1, side + 1, device=device).float() / (side + 1e-6) * (2 * math.pi)
        angles = place[:, None] / frequencies
        waves.append(torch.where(index % 2 == 0, angles.sin(), angles.cos()))  # (side, channels)
    rows, columns = waves[0][:, None].expand(-1, width, -1), waves[1][None].expand(height, -1, -1)
    return torch.cat([rows, columns], dim=-1)


class CrossBlock(nn.Module):
    """Latents and tokens update each other, both from their state before the block.

    `both_ways=False` is the last block of a classifier: tokens that nothing reads any more are left as they are.
    """

    def __init__(self, dim: int, heads: int, mlp_ratio: float, drop_path: float, both_ways: bool):
        super().__init__()
        self.heads, self.both_ways = heads, both_ways
        hidden = int(mlp_ratio * dim)
        self.norm1_latents = nn.LayerNorm(dim, eps=1e-6)
        self.norm1_tokens = nn.LayerNorm(dim, eps=1e-6)
        if both_ways:
            self.rv_latents = nn.Linear(dim, 2 * dim)  # references and values
        else:
            self.r_latents = nn.Linear(dim, dim)
        self.rv_tokens = nn.Linear(dim, 2 * dim)
        self.proj_latents = nn.Linear(dim, dim)
        self.norm2_latents = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_latents = Mlp(dim, hidden)
        if both_ways:
            self.proj_tokens = nn.Linear(dim, dim)
            self.norm2_tokens = nn.LayerNorm(dim, eps=1e-6)
            self.mlp_tokens = Mlp(dim, hidden)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, latents: Tensor, tokens: Tensor) -> State:
        normed = self.norm1_latents(latents)
        token_references, token_values = self.rv_tokens(self.norm1_tokens(tokens)).chunk(2, dim=-1)
        if self.both_ways:
            latent_references, latent_values = self.rv_latents(normed).chunk(2, dim=-1)
            to_latents, to_tokens = exchange(
                State(latent_references, token_references), State(latent_values, token_values), self.heads
            )
            tokens = tokens + self.drop_path(self.proj_tokens(to_tokens))
            tokens = tokens + self.drop_path(self.mlp_tokens(self.norm2_tokens(tokens)))
        else:
            scale = (latents.shape[-1] // self.heads) ** -0.5
            to_latents = attend(self.r_latents(normed), token_references, token_values, self.heads, scale)
        latents = latents + self.drop_path(self.proj_latents(to_latents))
        latents = latents + self.drop_path(self.mlp_latents(self.norm2_latents(latents)))
        return State(latents, tokens)


class LatentBlock(nn.Module):
    """Self-attention among the latents, and an MLP."""

    def __init__(self, dim: int, heads: int, mlp_ratio: float, drop_path: float):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, int(mlp_ratio * dim))
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, latents: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(latents)).chunk(3, dim=-1)
        scale = (latents.shape[-1] // self.heads) ** -0.5
        latents = latents + self.drop_path(self.proj(attend(q, k, v, self.heads, scale)))
        return latents + self.drop_path(self.mlp(self.norm2(latents)))


class Layer(nn.Module):
    """Latents exchange with tokens, then among themselves."""

    def __init__(self, dim: int, heads: int, mlp_ratio: float, drop_path: float, both_ways: bool):
        super().__init__()
        self.cross_block = CrossBlock(dim, heads, mlp_ratio, drop_path, both_ways)
        self.latent_block = LatentBlock(dim, heads, mlp_ratio, drop_path)

    def forward(self, state: State) -> State:
        latents, tokens = self.cross_block(*state)
        return State(self.latent_block(latents), tokens)
