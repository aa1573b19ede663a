"""Two rendered images of things that the photographs weights know: a golf ball and a parachute.

The photographs they were trained on may not be passed on, so the package draws its own. Shapes are (S, S) or (S, S, 3).
"""

from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from prism.app.intake import EASEL

DIMPLES = 420
DIMPLE = 0.072  # radius, as an angle
LIGHT = np.array([-0.45, -0.7, 0.55]) / np.linalg.norm([-0.45, -0.7, 0.55])  # from the upper left, in front
GORES = 9  # panels of the parachute
RED, WHITE = (214, 40, 40), (245, 245, 245)
DARK = (45, 45, 60)


def golf_ball(radius: float = 105) -> Image.Image:
    """A sphere whose normals tilt inside dimples, on grass."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:EASEL, :EASEL].astype(float)
    coarse, blades, patches = _clouds(rng, 7), _blurred(rng.random((EASEL, EASEL))), _clouds(rng, 4)
    tint = [40 + 60 * coarse + 50 * blades, 95 + 60 * coarse + 60 * blades, 25 + 25 * coarse + 20 * blades]
    shadow = np.clip(1 - ((x - 185) / (1.15 * radius)) ** 2 - ((y - 165 - 0.85 * radius) / (0.35 * radius)) ** 2, 0, 1)
    grass = np.stack(tint, -1) * ((0.65 + 0.5 * patches) * (1 - 0.6 * shadow))[..., None]

    across, down = (x - 160) / radius, (y - 165) / radius
    inside = across**2 + down**2 < 1
    across, down = across[inside], down[inside]
    normals = np.stack([across, down, np.sqrt(1 - across**2 - down**2)], -1).astype(np.float32)
    centres = _on_sphere(DIMPLES)
    cosines = normals @ centres.T
    dimpled = np.arccos(np.clip(cosines.max(-1), -1, 1)) < DIMPLE
    tilted = normals + 0.4 / DIMPLE * dimpled[:, None] * (centres[cosines.argmax(-1)] - normals)
    tilted /= np.linalg.norm(tilted, axis=-1, keepdims=True)
    halfway = LIGHT + np.array([0, 0, 1])
    halfway /= np.linalg.norm(halfway)
    brightness = 95 + 150 * np.clip(tilted @ LIGHT, 0, 1) + 40 * np.clip(tilted @ halfway, 0, 1) ** 40
    grass[inside] = brightness[:, None] * [1, 1, 0.97]
    return _image(grass)


def parachute(centre: tuple[int, int] = (160, 150), width: int = 115, height: int = 88) -> Image.Image:
    """A striped canopy with lines and a jumper, before clouds."""
    clouds = _clouds(np.random.default_rng(0), 5) ** 2
    down = np.mgrid[:EASEL, :EASEL][0] / EASEL
    image = _image(np.stack([90 + 60 * down + 60 * clouds, 140 + 50 * down + 45 * clouds, 205 + 25 * down], -1))
    pen = ImageDraw.Draw(image)
    x, y = centre
    jumper_x, jumper_y = x + 5, y + 135
    edges = np.linspace(-1, 1, GORES + 1)
    for edge in edges:
        pen.line([(x + width * edge, y), (jumper_x, jumper_y)], DARK)
    rise = np.linspace(0, np.pi / 2, 20)
    for gore, (left, right) in enumerate(pairwise(edges)):
        up = [(x + width * left * np.cos(angle), y - height * np.sin(angle)) for angle in rise]
        back = [(x + width * right * np.cos(angle), y - height * np.sin(angle)) for angle in rise[::-1]]
        hem = (x + width * (left + right) / 2, y - 9)
        shade = 1 - 0.28 * gore / (GORES - 1)
        pen.polygon([*up, *back, hem], tuple(int(shade * part) for part in (RED, WHITE)[gore % 2]))
    pen.ellipse((jumper_x - 5, jumper_y - 6, jumper_x + 5, jumper_y + 4), DARK)
    pen.rectangle((jumper_x - 6, jumper_y + 3, jumper_x + 6, jumper_y + 20), DARK)
    for leg in (-5, 1):
        pen.rectangle((jumper_x + leg, jumper_y + 20, jumper_x + leg + 4, jumper_y + 33), DARK)
    return image.filter(ImageFilter.GaussianBlur(0.8))


def _on_sphere(count: int) -> np.ndarray:
    """Points evenly on a sphere, on a spiral: (count, 3)."""
    place = np.arange(count) + 0.5
    polar, turn = np.arccos(1 - 2 * place / count), np.pi * (1 + 5**0.5) * place
    return np.stack([np.cos(turn) * np.sin(polar), np.sin(turn) * np.sin(polar), np.cos(polar)], -1).astype(np.float32)


def _clouds(rng: np.random.Generator, octaves: int) -> np.ndarray:
    """Noise of several scales, from 0 to 1."""
    layers = [_resized(rng.random((4 << octave, 4 << octave))) * 0.66**octave for octave in range(octaves)]
    total = np.sum(layers, 0)
    return (total - total.min()) / np.ptp(total)


def _resized(grid: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(grid.astype(np.float32)).resize((EASEL, EASEL), Image.Resampling.BICUBIC))


def _blurred(grid: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray((255 * grid).astype(np.uint8)).filter(ImageFilter.GaussianBlur(1))) / 255


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.7))
