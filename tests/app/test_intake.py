"""Images from strangers: what is too much is refused by its header, and what is taken arrives unchanged."""

import base64
import struct
import time
import zlib
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from prism.app.intake import EASEL, MOST_BYTES, as_pixels, read_mask, read_url, square, to_url
from prism.data.images import Unreadable


def blank_png(width: int, height: int) -> bytes:
    """One colour, one bit a pixel: megabytes of pixels in kilobytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 7) // 8 + 1) * height, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def as_url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def as_png(image: Image.Image) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_an_image_survives_the_way_to_the_browser_and_back():
    image = noise(20, 30)
    assert np.array_equal(np.asarray(read_url(to_url(image))), np.asarray(image))


@pytest.mark.parametrize(("width", "height"), [(20_000, 10_000), (12_000, 10_000), (1_025, 1_024)])
def test_a_bomb_is_refused_before_a_pixel_is_decoded(width: int, height: int, monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded"))
    started = time.process_time()
    with pytest.raises(Unreadable, match="more than a megapixel"):
        read_url(as_url(blank_png(width, height)))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "message contains no image"),
        ("https://example.org/a.png", "message contains no image"),
        ("file:///etc/passwd", "message contains no image"),
        ("data:image/png;base64,@@@", "arrived incomplete"),
        (as_url(b"text"), "not a readable image"),
        (as_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "svg+xml"), "not a readable image"),
        (as_url(as_png(noise(64, 64))[:4000]), "damaged"),
    ],
)
def test_what_is_not_an_image_is_refused_in_one_sentence(url: str, said: str):
    with pytest.raises(Unreadable, match=said) as refused:
        read_url(url)
    assert "\n" not in str(refused.value)


def test_a_kind_of_file_that_is_not_listed_is_refused():
    buffer = BytesIO()
    noise(8, 8).save(buffer, "TIFF")
    with pytest.raises(Unreadable, match="PNG, JPEG"):
        read_url(as_url(buffer.getvalue(), "png"))


def test_a_file_of_too_many_bytes_is_refused_before_it_is_decoded():
    with pytest.raises(Unreadable, match="larger than 2 MB"):
        read_url("data:image/png;base64," + "@" * (MOST_BYTES + 1))


@pytest.mark.parametrize("size", [(1, 1), (3, 500), (640, 480), (2000, 1000)])
def test_the_easel_takes_the_middle_square(size: tuple[int, int]):
    found = square(noise(*size))
    assert found.width == found.height == min(EASEL, max(1, round(0.875 * min(size))))


def test_the_middle_is_the_middle():
    image = Image.new("RGB", (300, 100), "red")
    image.paste("blue", (106, 6, 194, 94))
    assert square(image).getcolors() == [(88 * 88, (0, 0, 255))]


def test_pixels_of_the_right_size_are_not_touched():
    image = noise(32, 32)
    assert torch.equal(as_pixels(image, 32), torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255)


def test_a_mask_is_what_is_black():
    sheet = Image.new("RGB", (64, 64), "white")
    sheet.paste("black", (16, 0, 64, 32))
    mask = read_mask(to_url(sheet), 16)
    wanted = torch.zeros(16, 16, dtype=torch.bool)
    wanted[:8, 4:] = True
    assert torch.equal(mask, wanted)
    assert not read_mask("", 16).any()
