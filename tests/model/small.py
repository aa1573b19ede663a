"""A PRISM that is small and far from its start: attentions sharp, halting spread over steps, codebook started."""

from typing import Any

import timm
import torch

from prism import Prism


def small_prism(dtype: torch.dtype = torch.float32, **kwargs: Any) -> Prism:
    kwargs = dict(widths=(8, 12, 16, 24), slots=(5, 4, 4, 3), codes=16, num_classes=7) | kwargs
    model = timm.create_model("prism_nano", **kwargs)
    assert isinstance(model, Prism)
    for stage in model.stages:
        torch.nn.init.normal_(stage.halting.fc.weight, std=2.0)  # pyright: ignore
        if not isinstance(stage.step.token_scale, torch.nn.Identity):  # pyright: ignore
            torch.nn.init.uniform_(stage.step.token_scale.gain, 0.5, 1.5)  # pyright: ignore
    return model.to(dtype)


def random_images(batch: int, height: int = 64, width: int = 64, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Images of different colours and coarse patterns, so that they halt after different numbers of steps."""
    coarse = torch.nn.functional.interpolate(torch.randn(batch, 3, 3, 3), (height, width), mode="bilinear")
    return (torch.randn(batch, 3, 1, 1) + coarse + 0.3 * torch.randn(batch, 3, height, width)).to(dtype)
