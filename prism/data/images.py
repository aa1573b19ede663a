"""Images from files, whatever their kind, as RGB."""

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torchvision.transforms import v2

UNREADABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)


class Unreadable(ValueError):
    """An image that cannot be read: training skips it, evaluation stops."""


def read_image(path: str | Path) -> Image.Image:
    """The image as RGB of 8 bits, upright. Grey, palette, CMYK, alpha (on white) and 16-bit files are converted."""
    try:
        return _opened(path, str(path))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no image {path}") from None


def check_images(paths: Sequence[Path]) -> None:
    """Stop before the first is seen if there is none, two share a name, or one cannot be read.

    They are read again when it is their turn: together they might not fit into memory.
    """
    if not paths:
        raise ValueError("name at least one image")
    twice = [name for name, times in Counter(path.stem for path in paths).items() if times > 1]
    if twice:
        raise ValueError(f"two images are called {twice[0]}: what is written of them would have one name")
    for path in paths:
        read_image(path)


def decode_image(data: bytes, name: str) -> Image.Image:
    """The same for an image that is in memory already."""
    return _opened(BytesIO(data), name)


def _opened(source: str | Path | BytesIO, name: str) -> Image.Image:
    try:
        with Image.open(source) as image:
            return _as_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        reason = str(error) if isinstance(source, str | Path) and str(error) else type(error).__name__
        raise Unreadable(f"{name} cannot be read as an image: {reason}") from None


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


def fingerprint_files(entries: Iterable[tuple[str | Path, object]]) -> str:
    """Of every file's name, size and time, and of what is known about it, such as its label."""
    found = hashlib.sha256()
    for path, known in entries:
        status = os.stat(path)
        found.update(f"{path} {status.st_size} {status.st_mtime_ns} {known}\n".encode())
    return found.hexdigest()


def unit_pixels(picture: Image.Image) -> Tensor:
    """(3, H, W) in [0, 1]."""
    return v2.functional.pil_to_tensor(picture) / 255
