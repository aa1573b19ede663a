import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prism.data import images
from prism.data.images import Unreadable, decode_image, read_image
from prism.data.preprocessing import Preprocessing


def stored(folder: Path, mode: str, suffix: str = "png") -> Path:
    path = folder / f"{mode.replace(';', '')}.{suffix}"
    colour = Image.new("RGB", (20, 10), (200, 100, 50))
    if mode == "I;16":
        Image.fromarray(np.full((10, 20), 200 * 257, dtype=np.uint16)).save(path)
    elif mode == "RGBA":
        layer = colour.convert("RGBA")
        layer.putalpha(0)
        layer.save(path)
    else:
        colour.convert(mode).save(path)
    return path


@pytest.mark.parametrize(
    ("mode", "suffix", "expected"),
    [
        ("RGB", "png", (200, 100, 50)),
        ("L", "png", (124, 124, 124)),
        ("P", "png", None),
        ("1", "png", None),
        ("CMYK", "jpg", (200, 100, 50)),
        ("RGBA", "png", (255, 255, 255)),  # wholly transparent: the white behind it
        ("I;16", "png", (200, 200, 200)),
    ],
)
def test_every_kind_becomes_rgb(mode: str, suffix: str, expected, tmp_path: Path):
    image = read_image(stored(tmp_path, mode, suffix))
    assert image.mode == "RGB"
    assert image.size == (20, 10)
    if expected:
        assert np.abs(np.asarray(image).mean((0, 1)) - expected).max() < 4


def test_exif_rotation_is_undone(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    Image.new("RGB", (20, 10)).save(tmp_path / "turned.jpg", exif=exif)
    assert read_image(tmp_path / "turned.jpg").size == (10, 20)


def test_a_single_pixel_is_an_image(tmp_path: Path):
    Image.new("RGB", (1, 1), "red").save(tmp_path / "one.png")
    view = Preprocessing(32).unit(read_image(tmp_path / "one.png"))
    assert view.shape == (3, 32, 32)
    assert view.dtype == torch.float32
    assert torch.equal(view[0], torch.ones(32, 32))


def test_what_cannot_be_read_is_named(tmp_path: Path):
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "empty.jpg").touch()
    whole = stored(tmp_path, "RGB", "jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    for name in ("text.jpg", "empty.jpg", "cut.jpg"):
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image"):
            read_image(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"there is no image .*missing.jpg"):
        read_image(tmp_path / "missing.jpg")


@pytest.mark.parametrize("kind", ["AVIF", "QOI", "JPEG2000", "TIFF", "WEBP", "DDS", "SGI", "GIF"])
def test_whatever_a_decoder_raises_makes_an_image_unreadable(kind: str, tmp_path: Path):
    """AVIF once raised RuntimeError, QOI IndexError: here every format is cut short behind its header."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8))
    noise.save(tmp_path / "whole", kind)
    whole = (tmp_path / "whole").read_bytes()
    for share in (0.3, 0.6):
        (tmp_path / "cut.jpg").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(Unreadable, match=r"cut\.jpg cannot be read as an image"):
            read_image(tmp_path / "cut.jpg")
        with pytest.raises(Unreadable, match=r"^sample cannot be read as an image") as refused:
            decode_image((tmp_path / "cut.jpg").read_bytes(), "sample")
        assert "BytesIO" not in str(refused.value)


def test_any_exception_of_a_decoder_is_one_class(tmp_path: Path, monkeypatch):
    for error in (RuntimeError("decoder"), IndexError(), MemoryError(), RecursionError(), ZeroDivisionError()):
        monkeypatch.setattr(images.ImageOps, "exif_transpose", lambda _, error=error: (_ for _ in ()).throw(error))
        with pytest.raises(Unreadable, match="cannot be read as an image"):
            read_image(stored(tmp_path, "RGB"))


def test_a_pipe_is_refused_before_it_is_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.jpg")
    for name in ("pipe.jpg", ""):
        with pytest.raises(Unreadable, match="it is not a regular file"):
            read_image(tmp_path / name)


@pytest.mark.parametrize(("size", "reason"), [((1, 5_000_000), "thinner than 1 to 1000"), ((9500, 9500), "million")])
def test_what_would_not_fit_into_memory_is_refused_before_it_is_decoded(size, reason: str, tmp_path: Path, monkeypatch):
    Image.new("1", size).save(tmp_path / "bomb.png")
    monkeypatch.setattr(images.ImageOps, "exif_transpose", lambda _: pytest.fail("decoded"))
    with pytest.raises(Unreadable, match=reason):
        read_image(tmp_path / "bomb.png")


def test_postscript_is_never_interpreted(tmp_path: Path):
    Image.new("RGB", (20, 10)).save(tmp_path / "program.jpg", "EPS")
    with pytest.raises(Unreadable, match="EPS is not supported"):
        read_image(tmp_path / "program.jpg")
