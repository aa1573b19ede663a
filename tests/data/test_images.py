from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prism.data.images import read_image
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
    picture = read_image(stored(tmp_path, mode, suffix))
    assert picture.mode == "RGB"
    assert picture.size == (20, 10)
    if expected:
        assert np.abs(np.asarray(picture).mean((0, 1)) - expected).max() < 4


def test_exif_rotation_is_undone(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    Image.new("RGB", (20, 10)).save(tmp_path / "turned.jpg", exif=exif)
    assert read_image(tmp_path / "turned.jpg").size == (10, 20)


def test_a_single_pixel_is_a_picture(tmp_path: Path):
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
