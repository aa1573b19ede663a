"""What visitors send: pictures as data URLs, judged by their size and header before a pixel is decoded."""

import base64
import binascii
from io import BytesIO

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as views

from prism.data.images import UNREADABLE, Unreadable, decode_image, unit_pixels

MOST_BYTES = 20_000_000  # of a file
MOST_PIXELS = 32_000_000  # what most telephones make; half a gigabyte while an alpha channel is laid on white
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
EASEL = 320  # pixels along the side of the picture that is painted on
CROP = 0.875  # of the short side, as in evaluation


def square(picture: Image.Image) -> Image.Image:
    """The middle of a picture, by which networks are judged, no larger than the easel."""
    side = max(1, round(CROP * min(picture.size)))
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    middle = picture.crop((left, top, left + side, top + side))
    return middle if side <= EASEL else middle.resize((EASEL, EASEL), Image.Resampling.BICUBIC)


def read_url(url: str) -> Image.Image:
    """RGB of 8 bits from `data:...;base64,...`. What is too large, or no picture, is refused in one sentence."""
    head, _, body = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise Unreadable("there is no picture in the message")
    check_bytes(len(body) * 3 // 4)
    try:
        data = base64.b64decode(body, validate=True)
    except binascii.Error:
        raise Unreadable("the file did not arrive whole") from None
    _check_header(data)
    try:
        return decode_image(data, "the file")
    except Unreadable:
        raise Unreadable("the file is damaged: it cannot be read to its end") from None


def check_bytes(count: int) -> None:
    if count > MOST_BYTES:
        raise Unreadable(f"the file has {count / 1e6:.0f} megabytes; at most {MOST_BYTES / 1e6:.0f} are taken")


def _check_header(data: bytes) -> None:
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            pixels = image.width * image.height
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        pixels = None  # so many that PIL does not say
    except UNREADABLE:
        raise Unreadable(f"the file is no picture that can be read; {', '.join(FORMATS)} are taken") from None
    if pixels is None or pixels > MOST_PIXELS:
        found = f"{pixels / 1e6:.0f} megapixels" if pixels else "far too many pixels"
        raise Unreadable(f"the picture has {found}; at most {MOST_PIXELS / 1e6:.0f} megapixels are taken")


def read_mask(url: str, size: int) -> Tensor:
    """What was painted, black on white, as bool (size, size): True where half of a pixel is black. "" is nothing."""
    if not url:
        return torch.zeros(size, size, dtype=torch.bool)
    white = read_url(url).convert("L").resize((size, size), Image.Resampling.BOX)
    return views.pil_to_tensor(white)[0] < 128


def as_pixels(picture: Image.Image, size: int) -> Tensor:
    """The picture on the easel as a network sees it: (3, size, size) in [0, 1]."""
    return unit_pixels(picture.resize((size, size), Image.Resampling.BICUBIC))


def to_url(picture: Image.Image, kind: str = "PNG") -> str:
    buffer = BytesIO()
    picture.save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def to_picture(image: Tensor) -> Image.Image:
    """(3, H, W) in [0, 1] -> RGB."""
    return views.to_pil_image((image * 255).round().to(torch.uint8))
