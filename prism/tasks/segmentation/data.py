"""Images and their label maps as training sees them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as show

from prism.data.label_maps import VOID, Sides, fitted
from prism.data.stream import Transform

DISTORTION = {"brightness": 0.125, "contrast": 0.5, "saturation": 0.5, "hue": 0.05}  # each in every other image


def training_transform(
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    fit: Sides | None = None,
    scales: tuple[float, float] = (0.5, 2.0),
    flip: bool = True,
    distortion: bool = True,
) -> Transform:
    """Fit, scale at random, cut out a square (filled up with the mean colour and void), mirror, distort, normalise.

    Draws from torch's generator, which the stream seeds for each sample.
    """
    padding: dict[Any, Any] = {
        tv_tensors.Image: [round(255 * channel) for channel in mean],
        tv_tensors.Mask: VOID,
    }
    strengths = DISTORTION if distortion else {}
    augment = v2.Compose(
        [
            v2.RandomCrop(size, pad_if_needed=True, fill=padding),
            v2.RandomHorizontalFlip(0.5 if flip else 0.0),
            *(v2.RandomApply([v2.ColorJitter(**{name: strength})]) for name, strength in strengths.items()),
            v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
            v2.Normalize(list(mean), list(std)),
        ]
    )

    def transform(image: Image.Image, labels: np.ndarray) -> tuple[Tensor, Tensor]:
        height, width = fitted((image.height, image.width), fit)
        scale = float(torch.empty(()).uniform_(*scales))
        sides = [max(1, round(height * scale)), max(1, round(width * scale))]
        pixels = show.resize(show.pil_to_tensor(image), sides, antialias=True)
        # "nearest" alone would move labels by half a pixel against the image
        numbers = show.resize(torch.from_numpy(labels)[None], sides, v2.InterpolationMode.NEAREST_EXACT)
        pixels, numbers = augment(tv_tensors.Image(pixels), tv_tensors.Mask(numbers[0]))
        return pixels.as_subclass(Tensor), numbers.as_subclass(Tensor)

    return transform
