"""Ten plane shapes, each given by how deep a point lies inside its outline.

A shape fits the unit circle. Its depth at (u, v) is the distance to the outline, exact near the edges and positive
inside. Only + - * / and square roots appear: IEEE 754 rounds these alike everywhere, whereas the last bit of a sine
depends on the processor's library, and an image must be the same on every machine.
"""

import math
from collections.abc import Callable

import numpy as np

Depth = Callable[[np.ndarray, np.ndarray], np.ndarray]


def direction(random: np.random.Generator) -> tuple[float, float]:
    """A unit vector, every angle equally likely."""
    while True:
        x, y = (2 * random.random(2) - 1).tolist()
        length = math.sqrt(x * x + y * y)
        if 0.1 < length < 1:  # the corners of the square would favour the diagonals
            return x / length, y / length


def disc(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 1 - _length(u, v)


def square(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 0.7 - np.maximum(abs(u), abs(v))


def triangle(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.minimum(0.5 + v, 0.5 - 0.866 * abs(u) - 0.5 * v)


def ring(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    radius = _length(u, v)
    return np.minimum(1 - radius, radius - 0.5)


def cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    long, short = np.maximum(abs(u), abs(v)), np.minimum(abs(u), abs(v))
    return np.minimum(0.95 - long, 0.3 - short)


def star(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A pentagram: the points that leave at most one of five half planes, hence the second smallest distance."""
    sides = [(0, -1), (0.951, -0.309), (0.588, 0.809), (-0.588, 0.809), (-0.951, -0.309)]
    distances = np.stack([0.309 - x * u - y * v for x, y in sides])
    return np.partition(distances, 1, axis=0)[1]


def heart(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A square that stands on its corner, and a disc upon each of its two upper sides."""
    half, side, up = 0.74, abs(u), v + 0.074
    return np.maximum(0.707 * (half - side - abs(up)), 0.707 * half - _length(side - half / 2, up - half / 2))


def crescent(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.minimum(disc(u, v), _length(u - 0.45, v) - 0.75)


def arrow(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    side = abs(v)
    head = np.minimum(u + 0.05, 0.606 * (1 - u) - 0.795 * side)
    shaft = np.minimum(0.26 - side, np.minimum(u + 0.95, 0.3 - u))
    return np.maximum(head, shaft)


def hourglass(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    height = abs(v)
    return np.minimum(0.8 - height, 0.872 * (0.12 + 0.56 * height - abs(u)))


def _length(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.sqrt(u * u + v * v)  # np.hypot is not correctly rounded


DEPTHS: dict[str, Depth] = {
    shape.__name__: shape for shape in (disc, square, triangle, ring, cross, star, heart, crescent, arrow, hourglass)
}
