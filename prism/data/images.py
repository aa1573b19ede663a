"""Images from files, whatever their kind, as RGB."""

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torchvision.transforms import v2

MOST_PIXELS = 89_478_485  # where Pillow suspects a decompression bomb
THINNEST = 1000  # sides of 1 to 1000: a thinner one, enlarged to a network's size, would not fit into memory
PROGRAMS = ("EPS", "IPTC")  # PostScript is a program, which Pillow would hand to an interpreter; IPTC can contain it


class Unreadable(ValueError):
    """An image that cannot be read: training skips it, evaluation stops."""


def read_image(path: str | Path, thinnest: int = THINNEST) -> Image.Image:
    """The image as RGB of 8 bits, upright. Grey, palette, CMYK, alpha (on white) and 16-bit files are converted."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no image {path}")
    with open_image(path, str(path), thinnest=thinnest) as image:
        return _as_rgb(ImageOps.exif_transpose(image))


def check_images(paths: Sequence[Path]) -> None:
    """Stop before the first is seen if there is none, two share a name, or one cannot be read.

    They are read again when it is their turn: together they might not fit into memory.
    """
    if not paths:
        raise ValueError("name at least one image")
    twice = [name for name, times in Counter(path.stem for path in paths).items() if times > 1]
    if twice:
        raise ValueError(f"two images are called {twice[0]}: their outputs would overwrite each other")
    for path in paths:
        read_image(path)


def decode_image(data: bytes, name: str) -> Image.Image:
    """The same for an image that is in memory already."""
    with open_image(BytesIO(data), name) as image:
        return _as_rgb(ImageOps.exif_transpose(image))


@contextmanager
def open_image(
    source: str | Path | BytesIO, name: str, kind: str = "an image", thinnest: int = THINNEST
) -> Iterator[Image.Image]:
    """An image whose pixels are decoded within. Whatever goes wrong there makes it Unreadable: decoders raise anything.

    Nothing but a regular file is opened, as a pipe would wait for ever, and nothing larger than MOST_PIXELS decoded.
    """
    try:
        if not isinstance(source, BytesIO) and os.path.exists(source) and not os.path.isfile(source):
            raise OSError("it is not a regular file")
        with warnings.catch_warnings(action="ignore"), Image.open(source) as image:
            if image.format in PROGRAMS:
                raise OSError(f"{image.format} is not supported")
            if image.width * image.height > MOST_PIXELS:
                raise OSError(f"{image.width} x {image.height} pixels are more than {MOST_PIXELS / 1e6:.0f} million")
            if max(image.size) > thinnest * min(image.size):
                raise OSError(f"{image.width} x {image.height} pixels are thinner than 1 to {thinnest}")
            yield image
    except Exception as error:
        unknown = isinstance(source, BytesIO) and isinstance(error, UnidentifiedImageError)  # names an object in memory
        reason = "" if unknown else " ".join(str(error).split())[:200]
        raise Unreadable(f"{name} cannot be read as {kind}: {reason or type(error).__name__}") from None


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
        found.update(f"{path} {status.st_size} {status.st_mtime_ns} {known}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def unit_pixels(image: Image.Image) -> Tensor:
    """(3, H, W) in [0, 1]."""
    return v2.functional.pil_to_tensor(image) / 255
