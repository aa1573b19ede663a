"""What all figures share: the palette, curves with bands, grids of images."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from prism.reporting.files import one_line

matplotlib.rcParams["text.parse_math"] = False  # a dollar in a name is a dollar

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's: safe for all eyes
YELLOW = "#F0E442"  # the one of theirs that lines are not drawn in
MARKERS = "osD^vP"
PAPER: dict[str, Any] = dict(linestyle="--", markerfacecolor="white", linewidth=1, alpha=0.8)  # published values
DPI = 120


def look(number: int) -> dict[str, Any]:
    """Colour and marker of the model that comes at this place."""
    return dict(color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)])


def curve(axis: Any, points: Mapping[float, Sequence[float]], number: int, label: str | None, **style: Any) -> None:
    """A line through the means of the values at each place, and a band of their deviations."""
    at = sorted(points)
    mean = np.array([statistics.mean(points[x]) for x in at])
    spread = np.array([statistics.pstdev(points[x]) for x in at])
    drawn = look(number) | style
    axis.plot(at, mean, label=label and one_line(label), **drawn)
    axis.fill_between(at, mean - spread, mean + spread, color=drawn["color"], alpha=0.2, linewidth=0)


def panels(count: int, width: float = 4.2, height: float = 3.8, sharey: bool = True) -> tuple[Figure, list[Any]]:
    """A figure with axes side by side, each with a quiet grid."""
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = figure.subplots(1, count, sharey=sharey, squeeze=False)[0].tolist()
    for axis in axes:
        axis.grid(alpha=0.3)
    return figure, axes


def from_zero(axis: Any) -> None:
    """From 0 to just above the highest, after something was added to a finished figure."""
    axis.autoscale(enable=True, axis="y")
    axis.set_ylim(0, None)


def legend(axis: Any, **how: Any) -> None:
    """Where there is anything to name."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=8, **how)


def legend_below(figure: Figure, columns: int, handles: Sequence[Any] = (), size: float = 10) -> None:
    """Of the first panel, unless handles are given; nothing where there is nothing to name."""
    if shown := handles or figure.axes[0].get_legend_handles_labels()[0]:
        figure.legend(handles=shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=size)


def image_grid(rows: Sequence[Sequence[tuple[np.ndarray, str]]], side: float = 2.0) -> Figure:
    """Rows of images (H, W, 3), each under its title."""
    columns = max(map(len, rows))
    below = max(title.count("\n") for row in rows for _, title in row)  # lines of a title after its first
    figure = Figure(figsize=(side * columns, (side + 0.1 + 0.14 * below) * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for line, row in zip(axes, rows, strict=True):
        for axis, (image, title) in zip(line, row, strict=False):
            axis.imshow(image, interpolation="nearest")
            axis.set_title(title, fontsize=8)
    return figure


def pixels(image: Any) -> np.ndarray:
    """A tensor (3, H, W) in [0, 1] as (H, W, 3) of uint8."""
    return (image * 255).round().byte().permute(1, 2, 0).cpu().numpy()


def class_colours(classes: int, void: int = 255) -> np.ndarray:
    """RGB in [0, 1] for every number of uint8: Okabe and Ito's colours, then darker, lighter and duller ones.

    The first class, in most sets the background, is dark grey; void is white. Past 29 classes colours come again,
    a little darker: a legend names only what an image holds.
    """
    pure = np.array([to_rgb(colour) for colour in (*COLOURS, YELLOW)])
    wheel = np.concatenate([pure, 0.55 * pure, 0.5 + 0.5 * pure, 0.25 + 0.5 * pure])
    colours = np.ones((void + 1, 3))
    colours[0] = 0.25
    numbers = np.arange(min(classes, void) - 1)
    colours[1 + numbers] = wheel[numbers % len(wheel)] * 0.85 ** (numbers[:, None] // len(wheel))
    return colours


def contours(labels: np.ndarray) -> np.ndarray:
    """Pixels whose right or lower neighbour is of another class."""
    edges = np.zeros(labels.shape, bool)
    edges[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    edges[:-1] |= labels[:-1] != labels[1:]
    return edges


def save(figure: Figure, path: Path, dpi: int = DPI) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path
