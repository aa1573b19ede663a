"""Masking and filling, the one place where an image loses pixels; and any data set with parts hidden."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from prism.data.preprocessing import IMAGENET_MEAN
from prism.data.sources import name_of, original_index
from prism.occlusion.fills import Fill, fill
from prism.occlusion.masks import mask_generator
from prism.occlusion.settings import Setting


class Images(Protocol):
    """A data set of (image (3, H, W) in [0, 1], target)."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Tensor, Any]: ...


class Hidden(NamedTuple):
    image: Tensor  # (3, H, W) in [0, 1], its hidden pixels filled
    target: Any
    mask: Tensor  # (H, W) of bool, True where hidden
    clean: Tensor  # the image before


def hide(
    image: Tensor,
    mask: Tensor,
    generator: torch.Generator,
    filling: Fill = "mean",
    mean: Sequence[float] = IMAGENET_MEAN,
    others: tuple[int, int, Callable[[int], Tensor]] | None = None,
) -> Tensor:
    """The image (3, H, W) in [0, 1] with the masked pixels filled.

    `others` is (images in the set, index of this one, read one): where the texture comes from.
    """
    other = image
    if filling == "texture" and others is not None:
        length, index, read = others
        step = 1 + int(torch.randint(max(1, length - 1), (), generator=generator))
        other = read((index + step) % length)
    return fill(image, mask, filling, torch.tensor(mean), other, generator)


@dataclass
class Occluded(Dataset[Any]):
    """A data set under one setting: image (3, H, W) in [0, 1] with its hidden pixels filled, and its target.

    What is hidden depends on the image's index in the whole set and the seed, and on nothing else.
    """

    images: Images
    setting: Setting
    filling: Fill = "mean"
    seed: int = 0
    mean: Sequence[float] = IMAGENET_MEAN

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        return name_of(self.images, index)

    def __getitem__(self, index: int) -> Any:
        image, target, *_ = self.hidden(index)
        return image, target

    def hidden(self, index: int) -> Hidden:
        """With what was hidden, and what was there."""
        clean, target = self.images[index]
        generator = mask_generator(original_index(self.images, index), self.seed)
        mask = self.setting.mask((clean.shape[-2], clean.shape[-1]), generator)
        others = (len(self), index, lambda place: self.images[place][0])
        return Hidden(hide(clean, mask, generator, self.filling, self.mean, others), target, mask, clean)
