"""Two-coloured patterns for the surfaces of generated scenes.

As in `shapes`, only operations that every machine rounds alike. Nothing here knows what is being covered, so a colour
or a pattern says nothing of a shape.
"""

import numpy as np

from prism.data.shapes import direction

DARKEST, BRIGHTEST = 20, 190  # white and black are left to the rims of the objects, even in the light


def texture(random: np.random.Generator, x: np.ndarray, y: np.ndarray, contrast: float = 1.0) -> np.ndarray:
    """Colours (3, H, W), float32, at the points x (1, W) and y (H, 1), which are counted in image widths."""
    first, second = (DARKEST + (BRIGHTEST - DARKEST) * random.random((2, 3, 1, 1))).astype(np.float32)
    across, down = direction(random)
    shift, slide, frequency = random.random(), random.random(), 5 + 7 * random.random()
    s = frequency * (across * x + down * y) + shift
    t = frequency * (across * y - down * x) + slide
    pattern = PATTERNS[random.integers(len(PATTERNS))]
    return first + contrast * (second - first) * pattern(s, t)


def ramp(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    return abs(2 * _fraction(s / 5) - 1)


def stripes(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    return _step(_fraction(s) - 0.5)


def checks(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    return _step((_fraction(s) - 0.5) * (_fraction(t) - 0.5))


def dots(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    a, b = _fraction(s) - 0.5, _fraction(t) - 0.5
    return _step(0.1 - a * a - b * b)


def ripples(s: np.ndarray, t: np.ndarray) -> np.ndarray:
    return _step(_fraction(np.sqrt(s * s + t * t)) - 0.5)


def _fraction(value: np.ndarray) -> np.ndarray:
    return value - np.floor(value)


def _step(value: np.ndarray) -> np.ndarray:
    return (value > 0).astype(np.float32)


PATTERNS = (ramp, stripes, checks, dots, ripples)
