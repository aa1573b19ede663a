"""How an image becomes what a network sees: one object per checkpoint, kept with its weights."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from PIL import Image
from timm.data import resolve_data_config
from torch import Tensor, nn
from torchvision.transforms import v2

from prism.data.images import unit_pixels
from prism.data.scenes import SHAPES
from prism.model.metadata import Metadata

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
CROP = 0.875  # how ImageNet is evaluated


@dataclass(frozen=True)
class Preprocessing:
    """Short side to size / crop, centre crop, values in [0, 1], normalised. Without a crop images keep their size."""

    size: int = 224  # side of the square; without a crop, what the network was trained at
    crop: float | None = CROP
    interpolation: Literal["bicubic", "bilinear", "nearest"] = "bicubic"
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD

    def __call__(self, image: Image.Image) -> Tensor:
        return self.normalised(self.unit(image))

    def unit(self, image: Image.Image) -> Tensor:
        """(3, size, size) in [0, 1], before normalisation: what parts are hidden of."""
        if self.crop is None:
            return unit_pixels(image)
        how = v2.InterpolationMode(self.interpolation)
        shown = v2.Compose([v2.Resize(round(self.size / self.crop), how, antialias=True), v2.CenterCrop(self.size)])
        return unit_pixels(shown(image))

    def normalised(self, images: Tensor) -> Tensor:
        """(..., 3, H, W) in [0, 1] as the network sees it."""
        return normalise(images, self.mean, self.std)

    def at(self, size: int | None) -> "Preprocessing":
        """The same for another size, where one is asked for."""
        return self if size is None else replace(self, size=size)

    def to_metadata(self) -> dict[str, Any]:
        return asdict(self) | {"mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> "Preprocessing":
        """What a file leaves out is as for ImageNet, but files from before there was a crop saw scenes uncropped."""
        if metadata.version == 0:
            crop = None if metadata.task != "classification" else 1.0 if metadata.classes == list(SHAPES) else CROP
            return cls(**{"crop": crop, **metadata.preprocessing})
        return cls(**metadata.preprocessing)

    @classmethod
    def for_network(cls, network: nn.Module, size: int = 224, crop: float | None = CROP) -> "Preprocessing":
        """With the colours that timm says the network knows."""
        config = resolve_data_config(model=network)
        return cls(size, crop, mean=tuple(config["mean"]), std=tuple(config["std"]))


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """[0, 1] -> the numbers that a network was trained on."""
    means, stds = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (mean, std))
    return (images - means) / stds
