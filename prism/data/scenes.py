"""Images made from a seed: textured objects that really hide one another, with exact labels. No file is needed.

One object stands around the middle of the image and has a white rim; all others have a dark one. Its shape is the
class of the image. In every odd image other objects hide 30 to 60 % of it; in every even one at most 10 %; in a
clean image nothing. Objects are painted back to front, so what hides and what is hidden is known to the pixel.

H = W = size; a patch (P, P) is the square around one object.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from prism.data.composition import SHAPES as SHAPES
from prism.data.composition import Composition, Piece, Shares, compose
from prism.data.shapes import direction
from prism.data.textures import texture

SPLITS = ("train", "val", "clean")
SMALLEST = 32  # pixels; below, arms and necks are thinner than one
SEEDS = 2**32  # numpy reads a larger number as two, and two images could then be one

HIDDEN, HARDLY_HIDDEN, UNHIDDEN = Shares(0.3, 0.6), Shares(0, 0.1), Shares(0, 0)
RIM, SHADOW = 0.025, 0.03  # width of the one, offset of the other, in image widths


class Box(NamedTuple):
    """In pixels; `right` and `bottom` are the first ones outside, so that widths are differences."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, eq=False)
class SceneObject:
    """One object, as far as it lies within the image."""

    label: int
    box: Box  # around `amodal`
    visible_box: Box  # around `visible`
    amodal: np.ndarray  # (H, W) bool, all of it
    visible: np.ndarray  # (H, W) bool, what nothing in front of it covers
    hidden: float  # 1 - area of `visible` / area of `amodal`


@dataclass(frozen=True, eq=False)
class Scene:
    """An image and all that is known of it. An object of which no pixel can be seen is not listed."""

    image: np.ndarray  # (H, W, 3) uint8
    objects: tuple[SceneObject, ...]  # back to front
    centre: int  # index of the marked object

    @property
    def label(self) -> int:
        return self.objects[self.centre].label

    @property
    def semantic(self) -> np.ndarray:
        """(H, W) uint8: 0 where the ground is seen, else 1 + the shape that is."""
        classes = np.zeros(self.image.shape[:2], np.uint8)
        for item in self.objects:
            classes[item.visible] = 1 + item.label
        return classes


class Scenes(Dataset[tuple[Any, int]]):
    """Scenes to classify: (image, shape of its marked object). No two splits share an image."""

    def __init__(
        self,
        split: str = "train",
        length: int = 10_000,
        size: int = 64,
        seed: int = 0,
        transform: Callable[[Image.Image], Any] | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
        if not 0 < length <= SEEDS:
            raise ValueError(f"length must be from 1 to {SEEDS}, not {length}")
        if not 0 <= seed < SEEDS // len(SPLITS):
            raise ValueError(f"seed must be from 0 to {SEEDS // len(SPLITS) - 1}, not {seed}")
        _check_size(size)
        self.split, self.length, self.size, self.seed, self.transform = split, length, size, seed, transform
        self.classes = list(SHAPES)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        pixels, (pieces, centre) = _drawn(*self._address(index))
        image = Image.fromarray(pixels)
        return self.transform(image) if self.transform else image, pieces[centre].label

    def name(self, index: int) -> str:
        return f"scene {index} of {self.split}"

    def fingerprint(self) -> str:
        """What the scenes are rendered from."""
        return f"{self.length} {self.split} scenes of {self.size} px, seed {self.seed}"

    def scene(self, index: int) -> Scene:
        """The same image with the labels of every task."""
        return render(*self._address(index))

    def _address(self, index: int) -> tuple[int, int, int, bool]:
        index = operator.index(index)
        if not 0 <= index < self.length:
            raise IndexError(f"index must be from 0 to {self.length - 1}, not {index}")
        seed = len(SPLITS) * self.seed + SPLITS.index(self.split)  # no other seed and split give this number
        return seed, index, self.size, self.split == "clean"


def render(seed: int, index: int, size: int, clean: bool = False) -> Scene:
    """Scene `index` of the sequence that `seed` names."""
    image, (pieces, centre) = _drawn(seed, index, size, clean)
    objects = [_labelled(piece, pieces[place:], size) for place, piece in enumerate(pieces, start=1)]
    seen = tuple(item for item in objects if item is not None)
    marked = objects[centre]
    assert marked is not None
    return Scene(image, seen, seen.index(marked))


def render_scene(size: int, seed: int) -> np.ndarray:
    """One image (size, size, 3) of uint8, its marked object partly hidden."""
    return _drawn(seed, 1, size, clean=False)[0]


def _drawn(seed: int, index: int, size: int, clean: bool) -> tuple[np.ndarray, Composition]:
    _check_size(size)
    for name, value in (("seed", seed), ("index", index)):
        if not 0 <= value < SEEDS:
            raise ValueError(f"{name} must be from 0 to {SEEDS - 1}, not {value}")
    random = np.random.default_rng([seed, index])
    shares = UNHIDDEN if clean else HIDDEN if index % 2 else HARDLY_HIDDEN
    composition = compose(random, size, shares)
    return _painted(random, composition, size), composition


def _painted(random: np.random.Generator, composition: Composition, size: int) -> np.ndarray:
    """(H, W, 3) uint8."""
    steps = np.arange(size, dtype=np.float32) / size
    canvas = texture(random, steps[None, :], steps[:, None], contrast=0.5)  # (3, H, W), a quiet ground
    light = direction(random)
    for place, piece in enumerate(composition.pieces):
        _cast_shadow(canvas, piece, light)
        _lay(canvas, piece, _surface(random, piece, size, light, marked=place == composition.centre))
    grain = 16 * random.random((size, size), np.float32) - 8
    return np.ascontiguousarray((canvas + grain).clip(0, 255).astype(np.uint8).transpose(1, 2, 0))


def _surface(
    random: np.random.Generator, piece: Piece, size: int, light: tuple[float, float], marked: bool
) -> np.ndarray:
    """Colours (3, P, P): a texture in slanting light, and a rim."""
    steps = np.arange(-piece.reach, piece.reach + 1, dtype=np.float32)
    x, y = steps[None, :], steps[:, None]
    shade = 1 - (0.25 / piece.reach) * (light[0] * y + light[1] * x)
    fill = texture(random, x / size, y / size) * shade
    rim = (RIM * size + 0.5 - piece.depth).clip(0, 1)
    return fill + ((255 if marked else 0) - fill) * rim


def _cast_shadow(canvas: np.ndarray, piece: Piece, light: tuple[float, float]) -> None:
    """Darken the canvas (in place) beside the piece, on the side away from the light."""
    size = canvas.shape[-1]
    offset = SHADOW * size
    window = piece.moved(offset * light[0], offset * light[1]).window(size)
    canvas[:, *window.image] *= 1 - 0.5 * (piece.depth[window.patch] / offset + 0.5).clip(0, 1)


def _lay(canvas: np.ndarray, piece: Piece, surface: np.ndarray) -> None:
    """Lay the piece over the canvas (in place). A pixel on its outline shows a little of what lies below."""
    window = piece.window(canvas.shape[-1])
    opacity = (piece.depth[window.patch] + 0.5).clip(0, 1)  # above 1/2 exactly where the mask is true
    below = canvas[:, *window.image]
    below += (surface[:, *window.patch] - below) * opacity


def _labelled(piece: Piece, in_front: tuple[Piece, ...], size: int) -> SceneObject | None:
    """None if no pixel of it can be seen."""
    amodal = piece.mask(size)
    visible = amodal.copy()
    for other in in_front:
        window = other.window(size)
        visible[window.image] &= other.depth[window.patch] <= 0
    if not visible.any():
        return None
    hidden = 1 - np.count_nonzero(visible) / np.count_nonzero(amodal)
    return SceneObject(piece.label, _tight_box(amodal), _tight_box(visible), amodal, visible, hidden)


def _tight_box(mask: np.ndarray) -> Box:
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _check_size(size: int) -> None:
    if size < SMALLEST:
        raise ValueError(f"size must be at least {SMALLEST} pixels, not {size}")
