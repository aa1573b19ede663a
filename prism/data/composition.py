"""Where the objects of a generated scene stand, and how much of the marked one they hide.

H = W = size; a patch (P, P) is the square around one object.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from prism.data.shapes import DEPTHS, direction

SHAPES = tuple(DEPTHS)


class Shares(NamedTuple):
    """Bounds for the share of the marked object that others hide."""

    least: float
    most: float


class Window(NamedTuple):
    """What a patch and the image have in common, as an index of either."""

    image: tuple[slice, slice]
    patch: tuple[slice, slice]


@dataclass(frozen=True, eq=False)
class Piece:
    """An object that is not painted yet. Its patch may reach beyond the image."""

    label: int
    depth: np.ndarray  # (P, P) float32, pixels from the outline, positive inside
    row: int  # of the middle of the patch
    column: int

    @property
    def reach(self) -> int:
        return len(self.depth) // 2

    def moved(self, rows: float, columns: float) -> "Piece":
        return replace(self, row=self.row + round(rows), column=self.column + round(columns))

    def window(self, size: int) -> Window:
        rows, columns = (_common(middle - self.reach, len(self.depth), size) for middle in (self.row, self.column))
        return Window((rows[0], columns[0]), (rows[1], columns[1]))

    def mask(self, size: int) -> np.ndarray:
        """(H, W) bool: where the object is, whatever lies in front of it."""
        mask = np.zeros((size, size), bool)
        window = self.window(size)
        mask[window.image] = self.depth[window.patch] > 0
        return mask


class Composition(NamedTuple):
    pieces: tuple[Piece, ...]  # back to front
    centre: int  # index of the marked piece


def compose(random: np.random.Generator, size: int, shares: Shares) -> Composition:
    """Two to four objects anywhere, the marked one around the middle, and one or two before it."""
    behind = [_piece(random, size, (0.15, 0.28), (0, 1)) for _ in range(random.integers(2, 5))]
    centre = _piece(random, size, (0.22, 0.3), (0.4, 0.6))  # it lies in the image as a whole
    return Composition((*behind, centre, *_in_front(random, centre, size, shares)), len(behind))


def _piece(random: np.random.Generator, size: int, radii: tuple[float, float], places: tuple[float, float]) -> Piece:
    """Any shape, turned anyhow, its radius and place drawn from these ranges of image widths."""
    label = int(random.integers(len(SHAPES)))
    radius = size * _between(random, *radii)
    row, column = int(size * _between(random, *places)), int(size * _between(random, *places))
    cosine, sine = direction(random)
    reach = int(radius) + 2  # leaves room for the soft edge
    steps = np.arange(-reach, reach + 1, dtype=np.float32) / radius
    x, y = steps[None, :], steps[:, None]
    depth = DEPTHS[SHAPES[label]](cosine * x + sine * y, cosine * y - sine * x)
    return Piece(label, depth * radius, row, column)


def _in_front(random: np.random.Generator, centre: Piece, size: int, shares: Shares) -> list[Piece]:
    """Objects that together hide a share of `centre` within these bounds."""
    whole = centre.mask(size)
    area = np.count_nonzero(whole)
    while True:  # a slim object cannot hide 30 % of a big one: then others are drawn
        limit = _between(random, 0.8 * shares.least + 0.2 * shares.most, shares.most)  # most drafts stop just below it
        count = int(random.integers(1, 3))
        bare, front = whole, []
        for number in range(1, count + 1):
            piece = _piece(random, size, (0.17, 0.3), (0, 1))
            # Those that are to hide it come as near as they may; the others stop anywhere.
            rest = 0 if shares.least else int(size * _between(random, 0, 0.6))
            allowed = limit * area * number / count - (area - np.count_nonzero(bare))
            front.append(_approached(piece, centre, direction(random), rest, bare, allowed))
            bare = bare & ~front[-1].mask(size)
        if area - np.count_nonzero(bare) >= shares.least * area:
            return front


def _approached(
    piece: Piece, centre: Piece, path: tuple[float, float], rest: int, bare: np.ndarray, allowed: float
) -> Piece:
    """The piece, come along `path` towards the middle of `centre` until it is `rest` pixels away, or until one pixel
    further would cover more than `allowed` of the pixels still `bare`."""
    start = replace(piece, row=centre.row, column=centre.column)

    def at(distance: int) -> Piece:
        return start.moved(distance * path[0], distance * path[1])

    def fits(distance: int) -> bool:
        window = at(distance).window(len(bare))
        return int(np.count_nonzero(bare[window.image] & (piece.depth[window.patch] > 0))) <= allowed

    if fits(rest):
        return at(rest)
    near, far = rest, centre.reach + piece.reach  # too near; far enough, since shapes lie within their circles
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (near, middle) if fits(middle) else (middle, far)
    return at(far)


def _common(start: int, length: int, size: int) -> tuple[slice, slice]:
    """What `length` pixels from `start` share with the image, counted from its edge and from `start`."""
    first = max(start, 0)
    last = max(first, min(start + length, size))
    return slice(first, last), slice(first - start, last - start)


def _between(random: np.random.Generator, low: float, high: float) -> float:
    return low + (high - low) * random.random()  # random.uniform fuses the two operations on some machines
