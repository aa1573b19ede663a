"""Slot maps and regions as pixels and figures, for whoever shows them.

(h, w) positions of a stage's grid, (H, W) pixels of an image.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from prism.analysis.slots import winners
from prism.model.stage import StageTrace
from prism.reporting.figures import class_colours, contours

PALETTE = class_colours(25)[1:25]  # of slots, RGB in [0, 1]
FINE = 256  # pixels along the side of a map: a line of one pixel is thin there


class Line(NamedTuple):
    """A row of the sheet: an image, and what won where in each step."""

    title: str
    pixels: np.ndarray  # (H, W, 3) uint8
    winners: list[np.ndarray]  # (h, w) of slot numbers, one for each step
    weights: list[float]  # of the steps' states in the stage's output


def painted(winner: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Colour is the winning slot (h, w), brightness the image's (H, W, 3) of uint8; (H, W, 3) in [0, 1].

    White lines part the slots, for eyes that do not tell their colours.
    """
    numbers = Image.fromarray(winner.astype(np.uint8))
    large = np.asarray(numbers.resize(pixels.shape[1::-1], Image.Resampling.NEAREST))
    drawn = PALETTE[large % len(PALETTE)] * (0.35 + 0.65 * pixels.mean(-1, keepdims=True) / 255)
    drawn[contours(large)] = 1.0
    return drawn


def spotlit(pixels: np.ndarray, box: Sequence[int], brightness: float) -> np.ndarray:
    """The image (H, W, 3) of uint8, darkened but for a box: left, top, right, bottom."""
    left, top, right, bottom = box
    shown = brightness * pixels
    shown[top:bottom, left:right] = pixels[top:bottom, left:right]
    return shown.astype(np.uint8)


def lines(pixels: np.ndarray, stages: Sequence[StageTrace]) -> list[Line]:
    """One for each stage, of the traces' first image."""
    steps = [int(stage.steps[0]) for stage in stages]
    return [
        Line(f"stage {n}: {count} step{'s' * (count > 1)}", pixels, winners(stage), stage.weights[0, :count].tolist())
        for n, (stage, count) in enumerate(zip(stages, steps, strict=True), start=1)
    ]


def sheet(*blocks: Sequence[Line]) -> Figure:
    """Blocks of lines side by side."""
    columns = 1 + max(len(line.winners) for block in blocks for line in block)
    drawn = Figure(figsize=(2.2 * columns * len(blocks), 2.4 * len(blocks[0])), layout="constrained")
    parts = drawn.subfigures(1, len(blocks), squeeze=False, wspace=0.03)[0]
    for part, block in zip(parts, blocks, strict=True):
        for axes, line in zip(part.subplots(len(block), columns, squeeze=False), block, strict=True):
            _draw(axes, line)
    return drawn


def _draw(axes: Sequence[Any], line: Line) -> None:
    for axis in axes:
        axis.set_axis_off()
    axes[0].imshow(line.pixels)
    axes[0].set_title(line.title, fontsize=10)
    times = max(1, FINE // len(line.pixels))
    fine = line.pixels.repeat(times, 0).repeat(times, 1)
    for step, (winner, weight) in enumerate(zip(line.winners, line.weights, strict=True), start=1):
        axes[step].imshow(painted(winner, fine))
        axes[step].set_title(f"step {step}, weight {weight:.2f}", fontsize=10)
