"""A small PRISM whose images take different steps."""

from typing import Any

import torch

from prism import Prism


def restless(**arguments: Any) -> Prism:
    small = dict(widths=(16, 32), slots=(4, 4), codes=16, num_classes=5, max_steps=4)
    network = Prism(**{**small, **arguments}).eval()
    for stage in network.stages:
        torch.nn.init.normal_(stage.halting.fc.weight, std=0.5)  # pyright: ignore
    return network


def varied(batch: int, height: int, width: int) -> torch.Tensor:
    """Noise about a colour of each image's own, which is what its steps follow."""
    return torch.randn(batch, 3, height, width) + 3 * torch.randn(batch, 3, 1, 1)
