"""A toy mask: every other column of so many pixels."""

import torch
from torch import Tensor

from prism.occlusion import Mask, register


def stripes(size: tuple[int, int], width: float, generator: torch.Generator) -> Tensor:
    return ((torch.arange(size[1]) // int(width)) % 2 == 0).expand(size)


register(Mask("Stripes", stripes, "half of the image hidden", lambda width: 0.5))
