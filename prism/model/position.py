"""Positions of a grid of any size, kept as the sum of a row part and a column part.

H x W positions (N = H W), D channels; B images, K slots.

The embedding of a position is the concatenation of what its row and what its column give, hence a sum
p(i, j) = row(i) + column(j). Linear maps and dot products keep that form, so whatever the network asks of the
positions costs O((H + W) D) and never O(H W D).
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LOWEST_FREQUENCY, HIGHEST_FREQUENCY = 0.5, 10.0  # turns over the image, so that any resolution sees the same field


class Positions(NamedTuple):
    """A field over the grid: p(i, j) = axes[i] + axes[H + j]. The paper's p_s, or a projection of it."""

    axes: Tensor  # (H + W, D), what each row gives, then what each column gives
    grid: tuple[int, int]  # (H, W)

    def projected(self, weight: Tensor) -> "Positions":
        """W p, as a field of the same form."""
        return Positions(F.linear(self.axes, weight), self.grid)

    def scores(self, vectors: Tensor) -> Tensor:
        """Dot product of each vector with each position: (B, K, D) -> (B, K, N)."""
        # two products: of the halves of one, OpenVINO 2026.4 mixes up the memory where K = H
        by_row, by_column = (vectors @ part.mT for part in self.axes.split(self.grid))  # (B, K, H), (B, K, W)
        return (by_row[..., :, None] + by_column[..., None, :]).flatten(-2)

    def gathered(self, weights: Tensor) -> Tensor:
        """Weighted sum of the positions: (B, K, N) -> (B, K, D)."""
        on_grid = weights.unflatten(-1, self.grid)
        return torch.cat([on_grid.sum(-1), on_grid.sum(-2)], dim=-1) @ self.axes

    def dense(self) -> Tensor:
        """Every position written out: (N, D)."""
        rows, columns = self.axes.split(self.grid)
        return (rows[:, None] + columns[None, :]).flatten(0, 1)


def sincos_positions(height: int, width: int, dim: int, like: Tensor) -> Positions:
    """Fixed 2-D sine-cosine embedding of image-relative coordinates, with unit variance.

    Row i stands at (i + 0.5) / H of the image's height: a larger image has finer steps over the same field.
    """
    if dim % 4:
        raise ValueError(f"positions need a width divisible by 4, got {dim}")
    rows, columns = _waves(height, dim // 4, like), _waves(width, dim // 4, like)
    axes = torch.cat([F.pad(rows, (0, dim // 2)), F.pad(columns, (dim // 2, 0))])
    return Positions(axes, (height, width))


def _waves(length: int, frequencies: int, like: Tensor) -> Tensor:
    ratio = HIGHEST_FREQUENCY / LOWEST_FREQUENCY
    exponents = torch.arange(frequencies, device=like.device, dtype=like.dtype) / max(frequencies - 1, 1)
    coordinate = (torch.arange(length, device=like.device, dtype=like.dtype) + 0.5) / length * 2 * math.pi
    angles = coordinate[:, None] * (LOWEST_FREQUENCY * ratio**exponents)  # (length, frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=-1) * 2**0.5  # a sine alone has variance 1/2
