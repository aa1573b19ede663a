"""From the benchmark's rows to what people look at: the paper's table, curves, one HTML page."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from prism.metrics.significance import paired_p_value
from prism.occlusion.benchmark import CLEAN, Occluded, Pictures, Predictions, Setting
from prism.occlusion.fills import Fill
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows, with_deviation

# Table 1 of the paper: ImageNet-1K, trained for 300 epochs.
PUBLISHED_SETTINGS = ("clean", "PatchMask0.6", "PatchMask0.8", "BlockMask112", "OnlyOne112", "OnlyOne56")
PUBLISHED: dict[str, dict[str, float]] = {
    name: dict(zip(PUBLISHED_SETTINGS, scores, strict=True))
    for name, scores in {
        "PVTv2-B1": (78.7, 53.8, 39.6, 74.6, 62.8, 27.8),
        "XCiT-T24": (79.4, 53.1, 41.2, 76.5, 61.5, 25.6),
        "BiXT-Ti/16": (80.1, 55.6, 40.5, 77.2, 64.2, 28.5),
        "BiFormer-T": (81.4, 60.4, 42.1, 77.2, 66.4, 30.4),
        "PRISM": (80.3, 69.1, 44.6, 78.9, 69.2, 33.8),
    }.items()
}


def paper_table(rows: Rows, filling: str) -> list[dict[str, Any]]:
    """A row a model in the paper's layout, mean and deviation over its runs and mask seeds; then the paper's rows."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    scores = _scores(rows, filling)
    ours = [
        {"model": name, **{s: with_deviation(scores[name, s]) for s in settings}}
        for name in dict.fromkeys(row["model"] for row in rows)
    ]
    theirs = [
        {"model": f"{name} (paper, ImageNet)", **{s: f"{published[s]:.1f}" if s in published else "" for s in settings}}
        for name, published in PUBLISHED.items()
    ]
    return [*ours, *theirs]


def retention_table(rows: Rows, filling: str) -> list[dict[str, Any]]:
    """Occluded over clean accuracy, in per cent; and the mean over each kind's settings, the area under its curve."""
    scores = {key: statistics.mean(values) for key, values in _scores(rows, filling).items()}
    settings = [s for s in dict.fromkeys(row["setting"] for row in rows) if s != CLEAN.name]
    table = []
    for name in dict.fromkeys(row["model"] for row in rows):
        clean = scores[name, CLEAN.name]
        kept = {s: f"{100 * scores[name, s] / clean:.1f}" if clean else "" for s in settings}
        areas = {
            f"area {kind}": f"{statistics.mean(scores[name, s] for s in settings if s.startswith(kind)):.1f}"
            for kind in ("PatchMask", "BlockMask", "OnlyOne")
            if any(s.startswith(kind) for s in settings)
        }
        table.append({"model": name, **kept, **areas})
    return table


def fills_table(rows: Rows) -> list[dict[str, Any]]:
    """Top-1 of each model and setting by what was put into the hidden pixels."""
    fills = [f for f in dict.fromkeys(row["fill"] for row in rows) if f]
    scores = {filling: _scores(rows, filling) for filling in fills}
    keys = [key for key in scores[fills[0]] if key[1] != CLEAN.name] if fills else []
    return [
        {"model": name, "setting": setting, **{f: with_deviation(scores[f][name, setting]) for f in fills}}
        for name, setting in keys
    ]


def significance_table(
    predictions: Mapping[tuple[str, str, str, str, int], Predictions], filling: str
) -> list[dict[str, Any]]:
    """Each pair of models in each setting: the difference in points, and McNemar's p over the images both saw.

    Runs are paired in their order, and so are mask seeds; images of all pairs are pooled.
    """
    hits: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for (name, _, setting, used, _), found in predictions.items():
        if used == filling or setting == CLEAN.name:
            hits[name, setting].append(found.rank == 0)
    names = list(dict.fromkeys(name for name, _ in hits))
    table = []
    for a, b in combinations(names, 2):
        for setting in dict.fromkeys(setting for _, setting in hits):
            pairs = list(zip(hits[a, setting], hits[b, setting], strict=False))
            left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
            difference = 100 * float(left.mean() - right.mean())
            table.append(
                {"pair": f"{a} - {b}", "setting": setting, "points": difference, "p": paired_p_value(left, right)}
            )
    return table


def curves(rows: Rows, filling: str) -> Figure:
    """Top-1 against how much is hidden, a panel for each kind of mask; bands are deviations over runs and seeds."""
    scores = _scores(rows, filling)
    names = list(dict.fromkeys(row["model"] for row in rows))
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    panels: list[tuple[str, str, Callable[[float], float]]] = [
        ("PatchMask", "share of cells hidden", lambda ratio: ratio),
        ("BlockMask", "share of the image hidden", lambda side: (side / 224) ** 2),
        ("OnlyOne", "share of the image hidden", lambda side: 1 - (side / 224) ** 2),
    ]
    for axis, (kind, label, hidden) in zip(figure.subplots(1, 3, sharey=True), panels, strict=True):
        for number, name in enumerate(names):
            own = {setting: values for (model, setting), values in scores.items() if model == name}
            masked = [(hidden(float(s.removeprefix(kind))), v) for s, v in own.items() if s.startswith(kind)]
            points = sorted([(0.0, own[CLEAN.name]), *masked])
            x = [at for at, _ in points]
            mean = np.array([statistics.mean(values) for _, values in points])
            spread = np.array([statistics.pstdev(values) for _, values in points])
            colour, marker = COLOURS[number % len(COLOURS)], "osD^vP"[number % 6]
            axis.plot(x, mean, color=colour, marker=marker, label=name)
            axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        axis.set(title=kind, xlabel=label, xlim=(-0.02, 1.02))
        axis.grid(alpha=0.3)
    figure.axes[0].set(ylabel=f"top-1 accuracy, % ({filling} fill)", ylim=(0, None))
    figure.axes[0].legend(frameon=False)
    return figure


def examples(pictures: Pictures, settings: Sequence[Setting], fills: Sequence[Fill], mean: Sequence[float]) -> Figure:
    """Two pictures under every setting, and under every fill if there are several."""
    shown = [index * (len(pictures) // 2) for index in range(min(2, len(pictures)))]
    variants = [(Occluded(pictures, s, fills[0], 0, mean), s.name) for s in settings]
    if len(fills) > 1:
        shown_in = next((s for s in settings if s.name == "BlockMask112"), settings[-1])
        variants += [(Occluded(pictures, shown_in, f, 0, mean), f"{shown_in.name}, {f}") for f in fills[1:]]
    columns = min(8, len(variants))
    lines = -(-len(variants) // columns)
    figure = Figure(figsize=(1.7 * columns, 2.0 * lines * len(shown)), layout="constrained")
    axes = figure.subplots(lines * len(shown), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for line, index in enumerate(shown):
        for number, (view, title) in enumerate(variants):
            image, _ = view[index]
            axis = axes[line * lines + number // columns, number % columns]
            axis.imshow(_pixels(image), interpolation="nearest")
            axis.set_title(title, fontsize=8)
    return figure


def _scores(rows: Rows, filling: str) -> dict[tuple[str, str], list[float]]:
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["fill"] in (filling, ""):
            scores[row["model"], row["setting"]].append(float(row["top-1"]))
    return dict(scores)


def _pixels(image: Tensor) -> np.ndarray:
    return (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
