"""Pictures from files, whatever their kind, as RGB; and the view of them that a model is judged by."""

import struct
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

UNREADABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)


def read_picture(path: str | Path) -> Image.Image:
    """The picture as RGB of 8 bits, upright. Grey, palette, CMYK, alpha (on white) and 16-bit files are converted."""
    try:
        with Image.open(path) as image:
            return _as_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no picture {path}") from None
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read as a picture: {str(error) or type(error).__name__}") from None


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):  # 16 bits or more: scaled, where convert() would clip
        values = np.asarray(image, dtype=np.float64)
        if values.max() > 255:
            values = values / 257
        image = Image.fromarray(values.clip(0, 255).round().astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return image.convert("RGB")


def evaluation_view(size: int, crop: float = 0.875) -> v2.Compose:
    """Short side to size / crop, centre crop, (3, size, size) in [0, 1]: how ImageNet is judged."""
    return v2.Compose(
        [
            v2.Resize(round(size / crop), interpolation=v2.InterpolationMode.BICUBIC, antialias=True),
            v2.CenterCrop(size),
            v2.PILToTensor(),
            v2.Lambda(lambda pixels: pixels / 255),
        ]
    )


class PictureFolder(Dataset[tuple[Tensor, int]]):
    """A folder of folders, one a class: ImageNet's layout. An unreadable picture is an error that names it."""

    def __init__(self, root: Path, size: int, crop: float = 0.875):
        if not root.is_dir():
            raise FileNotFoundError(f"there is no folder {root}")
        self.files = ImageFolder(str(root), loader=read_picture)
        self.classes = self.files.classes
        self.view = evaluation_view(size, crop)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture, label = self.files[index]
        return self.view(picture), label


class Spread(Dataset[tuple[Tensor, int]]):
    """At most `limit` pictures of a data set, evenly spread over it: a quick look that still sees every class."""

    def __init__(self, pictures: PictureFolder, limit: int):
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        self.pictures = pictures
        self.length = min(limit, len(pictures))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.pictures[index * len(self.pictures) // self.length]
