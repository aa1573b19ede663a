"""Weights that can be drawn anywhere: each tensor from a generator seeded by its official key."""

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor


def drawn_weight(key: str, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    t = torch.randn(shape, dtype=torch.float64, generator=generator)
    if key.endswith("running_var"):
        return 1 + 0.1 * t.abs()
    if key.endswith("rpe_table") or key == "latents":
        return t
    if t.ndim <= 1:
        return 1 + 0.1 * t if key.endswith("weight") else 0.1 * t
    return t * (t.numel() / t.shape[0]) ** -0.5


def drawn_weights(layout: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {
        key: torch.tensor(0) if key.endswith("num_batches_tracked") else drawn_weight(key, shape)
        for key, shape in layout.items()
    }
