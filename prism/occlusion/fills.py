"""What stands in the hidden pixels. No fill is neutral, so the benchmark offers several.

Images are (3, H, W) in [0, 1], before normalisation.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

Fill = Literal["mean", "black", "grey", "noise", "blur", "texture"]
FILLS: tuple[Fill, ...] = get_args(Fill)


def fill(image: Tensor, mask: Tensor, kind: Fill, mean: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    """The image with its masked pixels replaced.

    `mean` is the data set's mean colour (3,), the headline's fill: 0 after normalisation. `other` is another image of
    the set, whose pixels are the `texture`.
    """
    return torch.where(mask, _paint(image, kind, mean, other, generator), image)


def _paint(image: Tensor, kind: Fill, mean: Tensor, other: Tensor, generator: torch.Generator) -> Tensor:
    match kind:
        case "mean":
            return mean.view(-1, 1, 1)
        case "black":
            return torch.zeros(())
        case "grey":
            return torch.full((), 0.5)
        case "noise":
            return torch.rand(image.shape, generator=generator)
        case "blur":
            # what a few pixels per side would show: colours stay, shapes go
            coarse = F.adaptive_avg_pool2d(image, 4)
            return F.interpolate(coarse[None], image.shape[-2:], mode="bicubic", align_corners=False)[0].clamp(0, 1)
        case "texture":
            if other.shape == image.shape:
                return other
            return F.interpolate(other[None], image.shape[-2:], mode="bilinear", align_corners=False)[0]
    raise ValueError(f"fill must be one of {', '.join(FILLS)}, got {kind!r}")
