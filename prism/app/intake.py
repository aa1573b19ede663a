"""What visitors send: images as data URLs, checked by size and header before a pixel is decoded.

The browser has cut and shrunk them already, so an honest image is small, and everything else is refused.
"""

import base64
import binascii
from io import BytesIO

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional as convert

from prism.data.images import Unreadable, decode_image, unit_pixels

EASEL = 320  # pixels along the side of the image that is painted on
MOST_PIXELS = 1024 * 1024
MOST_BYTES = 2_000_000  # in base64
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
CROP = 0.875  # of the short side, as in evaluation; page.js does the same


def square(image: Image.Image) -> Image.Image:
    """The middle of an image, on which networks are evaluated, no larger than the easel."""
    side = max(1, round(CROP * min(image.size)))
    left, top = (image.width - side) // 2, (image.height - side) // 2
    middle = image.crop((left, top, left + side, top + side))
    return middle if side <= EASEL else middle.resize((EASEL, EASEL), Image.Resampling.BICUBIC)


def read_url(url: str) -> Image.Image:
    """RGB of 8 bits from `data:...;base64,...`. What is too large, or no image, is refused in one sentence."""
    head, _, body = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise Unreadable("the message contains no image")
    if len(body) > MOST_BYTES:
        raise Unreadable(f"the image is larger than {MOST_BYTES / 1e6:.0f} MB")
    try:
        data = base64.b64decode(body, validate=True)
    except binascii.Error:
        raise Unreadable("the image arrived incomplete") from None
    _check_header(data)
    try:
        return decode_image(data, "the image")
    except Unreadable:
        raise Unreadable("the image is damaged and cannot be decoded") from None


def _check_header(data: bytes) -> None:
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            pixels = image.width * image.height
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        pixels = MOST_PIXELS + 1
    except Exception:  # whatever a reader of headers stumbles over
        raise Unreadable(f"this is not a readable image; supported formats are {', '.join(FORMATS)}") from None
    if pixels > MOST_PIXELS:
        raise Unreadable("the image has more than a megapixel")


def read_mask(url: str, size: int) -> Tensor:
    """What was painted, black on white, as bool (size, size): True where half of a pixel is black. "" is nothing."""
    if not url:
        return torch.zeros(size, size, dtype=torch.bool)
    white = read_url(url).convert("L").resize((size, size), Image.Resampling.BOX)
    return convert.pil_to_tensor(white)[0] < 128


def as_pixels(image: Image.Image, size: int) -> Tensor:
    """The image on the easel as a network sees it: (3, size, size) in [0, 1]."""
    return unit_pixels(image.resize((size, size), Image.Resampling.BICUBIC))


def to_url(image: Image.Image, kind: str = "PNG") -> str:
    buffer = BytesIO()
    image.save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
