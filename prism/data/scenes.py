"""Pictures made from a seed: textured objects that really hide one another. No file is needed."""

import math

import numpy as np

SHAPES = ("disc", "square", "triangle", "ring", "cross", "star")


def render_scene(size: int, seed: int, objects: int = 6) -> np.ndarray:
    """An RGB picture (size, size, 3) of uint8: objects painted back to front on a shaded ground."""
    random = np.random.default_rng(seed)
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    ground = random.uniform(60, 140, 3) + 40 * (x * random.uniform(-1, 1) + y * random.uniform(-1, 1))[..., None]
    canvas = ground + random.normal(0, 4, (size, size, 1))
    for shape in random.choice(SHAPES, objects):
        centre, radius, turn = random.uniform(0.2, 0.8, 2), random.uniform(0.12, 0.25), random.uniform(0, 2 * math.pi)
        u, v = (x - centre[0]) / radius, (y - centre[1]) / radius
        u, v = u * math.cos(turn) + v * math.sin(turn), v * math.cos(turn) - u * math.sin(turn)
        stripes = 0.75 + 0.25 * np.sign(np.sin(u * random.uniform(4, 12)) * np.sin(v * random.uniform(0, 8) + 1.5))
        canvas = np.where(_inside(shape, u, v)[..., None], random.uniform(40, 255, 3) * stripes[..., None], canvas)
    return canvas.clip(0, 255).astype(np.uint8)


def _inside(shape: str, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Where the unit shape covers its own coordinates."""
    radius, angle = np.hypot(u, v), np.arctan2(v, u)
    if shape == "disc":
        return radius < 1
    if shape == "square":
        return np.maximum(abs(u), abs(v)) < 0.85
    if shape == "triangle":
        return (v > -0.6) & (v < 1 - 1.7 * abs(u) + 0.2)
    if shape == "ring":
        return (radius < 1) & (radius > 0.55)
    if shape == "cross":
        return (np.minimum(abs(u), abs(v)) < 0.3) & (np.maximum(abs(u), abs(v)) < 1)
    return radius < 0.7 + 0.3 * np.cos(5 * angle)
