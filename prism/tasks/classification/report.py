"""From rows of accuracy under occlusion to a page: the paper's table, curves, what is kept, differences."""

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from prism.metrics.significance import paired_p_value
from prism.occlusion.benchmark import Key, Predictions, step_columns
from prism.occlusion.settings import CLEAN, MASKS, Setting, fills_of, kept, of_fill
from prism.reporting.figures import PAPER, curve, from_zero, legend, look, panels, save
from prism.reporting.pages import Section, present
from prism.reporting.tables import Row, Rows, Tables, column, grouped, means, with_deviation

# Table 1 of the paper: ImageNet-1K, trained for 300 epochs; parameters and FLOPs; deviations of PRISM's three runs
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
PUBLISHED_COSTS = {
    "PVTv2-B1": ("13 M", "2.1 G"),
    "XCiT-T24": ("12 M", "2.3 G"),
    "BiXT-Ti/16": ("15 M", "1.7 G"),
    "BiFormer-T": ("13 M", "2.2 G"),
    "PRISM": ("11 M", "2.2 G"),
}
PUBLISHED_DEVIATIONS: dict[str, float] = dict(
    zip(PUBLISHED_SETTINGS, (0.12, 0.18, 0.21, 0.10, 0.16, 0.25), strict=True)
)
DRAWN = ("PRISM", "PVTv2-B1")  # of the paper's, in figures
SIGNIFICANT = 0.05
HEADLINE = "BlockMask112"
NOTE = (
    "Top-1 accuracy in per cent; with several runs or mask seeds, mean ± deviation over them. Rows marked as the "
    "paper's are its published values on ImageNet-1K after 300 epochs, for reference: they were not measured here. "
    "Sides of blocks are given for images of 224 px and scale with the image."
)


def report(tables: Tables, out: Path) -> list[Section]:
    """Of the first table, of scores; and of `significance` and `retention` where they are there."""
    name, rows = next(iter(tables.items()))
    significance, filling = tables.get("significance", []), fills_of(rows)[0]
    told = f"{headline(rows, filling)}\n\n{words(rows, significance, filling)} {NOTE} Hidden pixels: {filling}."
    drawn = save(figure(rows, filling), out / f"{name}.png")
    differences = [
        {"pair": row["pair"], "setting": row["setting"], "points": f"{row['points']:+.1f}", "p": f"{row['p']:.2g}"}
        for row in significance
    ]
    return present(
        Section("Accuracy", told, paper_table(rows, filling)),
        Section(
            "What the models saw",
            "Three images of the data, whole and with parts hidden; ✓ is a right answer, ✗ a wrong one.",
            out / "examples.png",
        ),
        Section("Curves", "Bands are deviations over runs and mask seeds. Dashed: the paper's, on ImageNet.", drawn),
        Section(
            "What is kept",
            "Occluded over clean accuracy, per cent; and mean accuracy over the settings of a mask.",
            [{_heading(name): share for name, share in row.items()} for row in tables.get("retention", [])],
        ),
        Section("Differences", "In points; p by McNemar's exact test on the same pixels.", differences),
        Section("Steps", "Mean steps that PRISM took in each stage, and what they cost.", _steps(rows, filling)),
        Section("Fills", "No fill is neutral: the same masks, other pixels in them.", fills_table(rows)),
        Section("All rows", "Accuracies in per cent.", rows),
    )


def paper_table(rows: Rows, filling: str) -> list[Row]:
    """One row per model in the paper's layout, mean and deviation over its runs and mask seeds; then the paper's."""
    settings, scores = column(rows, "setting"), grouped(of_fill(rows, filling), ["model", "setting"], "top-1")
    clean = [row for row in rows if row["setting"] == CLEAN.name]
    sizes, costs = (means(clean, ["model"], name) if name in clean[0] else {} for name in ("parameters", "GMAC"))
    ours = [
        {"model": name}
        | ({"size": f"{sizes[name,] / 1e6:.2f} M", "FLOPs": f"{costs[name,]:.2g} G"} if sizes else {})
        | {_heading(s): with_deviation(scores.get((name, s), [])) for s in settings}
        for name in column(rows, "model")
    ]
    theirs = [
        {"model": f"{name} (paper, ImageNet)"}
        | (dict(zip(("size", "FLOPs"), PUBLISHED_COSTS[name], strict=True)) if sizes else {})
        | {_heading(s): f"{published[s]:.1f}" if s in published else "" for s in settings}
        for name, published in PUBLISHED.items()
    ]
    known = {setting: f"± {deviation:.2f}" for setting, deviation in PUBLISHED_DEVIATIONS.items()}
    spread = {"model": "PRISM's three runs (paper, ImageNet)"} | {_heading(s): known.get(s, "") for s in settings}
    return [*ours, *theirs, spread]


def retention_table(rows: Rows, filling: str) -> list[Row]:
    """Occluded over clean accuracy, in per cent; and the mean over each mask's settings, the area under its curve."""
    scores = means(of_fill(rows, filling), ["model", "setting"], "top-1")
    settings = [s for s in column(rows, "setting") if s != CLEAN.name]
    table = []
    for name in column(rows, "model"):
        clean = scores[name, CLEAN.name]
        kept = {s: f"{100 * scores[name, s] / clean:.1f}" if clean else "" for s in settings}
        of_kind: dict[str, list[float]] = defaultdict(list)
        for s in settings:
            of_kind[Setting.parse(s).kind].append(scores[name, s])
        table.append({"model": name, **kept, **{f"area {k}": f"{statistics.mean(v):.1f}" for k, v in of_kind.items()}})
    return table


def fills_table(rows: Rows) -> list[Row]:
    """Top-1 of each model and setting by what was put into the hidden pixels, if more than one thing was."""
    scores, fills = grouped(rows, ["model", "setting", "fill"], "top-1"), fills_of(rows)
    keys = dict.fromkeys((row["model"], row["setting"]) for row in rows if row["setting"] != CLEAN.name)
    return [
        {"model": name, "setting": s, **{f: with_deviation(scores.get((name, s, f), [])) for f in fills}}
        for name, s in (keys if len(fills) > 1 else ())
    ]


def significance_table(predictions: Mapping[Key, Predictions], filling: str) -> list[Row]:
    """Each pair of models in each setting: the difference in points, and McNemar's p over the images both saw.

    Runs are paired in their order, and so are mask seeds; images of all pairs are pooled.
    """
    hits: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for (name, _, setting, used, _), found in predictions.items():
        if used == filling or setting == CLEAN.name:
            hits[name, setting].append(found.rank == 0)
    names, table = list(dict.fromkeys(name for name, _ in hits)), []
    for a, b in combinations(names, 2):
        for setting in dict.fromkeys(setting for _, setting in hits):
            pairs = list(zip(hits[a, setting], hits[b, setting], strict=False))
            left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
            points = 100 * float(left.mean() - right.mean())
            table.append({"pair": f"{a} - {b}", "setting": setting, "points": points, "p": paired_p_value(left, right)})
    return table


def figure(rows: Rows, filling: str) -> Figure:
    """Top-1 against how much is hidden, one panel per mask; and two of the paper's models."""
    scores = grouped(of_fill(rows, filling), ["model", "setting"], "top-1")
    settings = [Setting.parse(name) for name in column(rows, "setting")]
    kinds = list(dict.fromkeys(s.kind for s in settings if s != CLEAN)) or ["PatchMask"]
    models = column(rows, "model")
    drawn, axes = panels(len(kinds), 4.0)
    for axis, kind in zip(axes, kinds, strict=True):
        own = [s for s in settings if s in (CLEAN,) or s.kind == kind]
        for number, name in enumerate(models):
            points = {s.hidden_share: scores[name, s.name] for s in own if (name, s.name) in scores}
            curve(axis, points, number, name)
        for number, name in enumerate(DRAWN, start=len(models)):
            published = [(Setting.parse(s), score) for s, score in PUBLISHED[name].items()]
            line = sorted((s.hidden_share, score) for s, score in published if s == CLEAN or s.kind == kind)
            if len(line) > 1:
                label = f"{name} (paper, ImageNet)"
                axis.plot(*zip(*line, strict=True), label=label, **(look(number) | PAPER))
        axis.set(title=kind, xlabel=MASKS[kind].label, xlim=(-0.02, 1.02))
    from_zero(axes[0])
    axes[0].set(ylabel=f"top-1 accuracy, % ({filling} fill)")
    legend(axes[min(1, len(axes) - 1)], loc="lower right")  # where blocks leave room
    return drawn


def headline(rows: Rows, filling: str) -> str:
    """What is kept behind the paper's large block, or in the last setting if that was not measured."""
    scores = means(of_fill(rows, filling), ["model", "setting"], "top-1")
    hiding = [setting for setting in column(rows, "setting") if setting != CLEAN.name]
    if not hiding:
        return ""
    chosen = HEADLINE if HEADLINE in hiding else hiding[-1]
    pairs = {model: (scores[model, CLEAN.name], scores[model, chosen]) for model in column(rows, "model")}
    return kept(pairs, "accuracy", Setting.parse(chosen))


def words(rows: Rows, significance: Rows, filling: str) -> str:
    """The comparison in sentences."""
    scores = means(of_fill(rows, filling), ["model", "setting"], "top-1")
    models, settings = column(rows, "model"), column(rows, "setting")
    hiding = [setting for setting in settings if setting != CLEAN.name]
    clean = ", ".join(f"{model} {scores[model, CLEAN.name]:.1f} %" for model in models)
    found = [f"On {rows[0]['images']} whole images, top-1 accuracy is {clean}."]
    for model in models if hiding else ():
        worst = min(hiding, key=lambda setting, model=model: scores[model, setting])
        best = max(hiding, key=lambda setting, model=model: scores[model, setting])
        found.append(
            f"With parts hidden, {model} reaches from {scores[model, worst]:.1f} % ({worst}) to "
            f"{scores[model, best]:.1f} % ({best})."
        )
    first = next((model for model in models if model.startswith("prism_")), models[0])
    for other in (model for model in models if model != first and hiding):
        gaps = {setting: scores[first, setting] - scores[other, setting] for setting in hiding}
        ways = {f"{first} - {other}": 1, f"{other} - {first}": -1}  # of the pairs of runs, their points
        sure = {
            row["setting"]
            for row in significance
            if row["p"] < SIGNIFICANT and ways.get(row["pair"], 0) * row["points"] > 0
        }
        ahead = [setting for setting in hiding if gaps[setting] > 0]
        widest = max(hiding, key=lambda setting, gaps=gaps: abs(gaps[setting]))
        found.append(
            f"{first} is ahead of {other} in {len(ahead)} of {len(hiding)} occluded settings, significantly "
            f"(p < {SIGNIFICANT}) in {len(sure.intersection(ahead))}; the widest gap is {gaps[widest]:+.1f} points, "
            f"at {widest}."
        )
    return " ".join(found)


def _heading(setting: str) -> str:
    """PatchMask0.6 in three words, which a narrow column can break."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", setting)


def _steps(rows: Rows, filling: str) -> list[Row]:
    """Of PRISM, with the headline's fill and the first mask seed."""
    shown = of_fill(rows, filling)
    first = next((row["mask seed"] for row in shown if row["setting"] != CLEAN.name), None)
    return [
        {name: row[name] for name in ("model", "run", "setting", *step_columns(row), "GMAC") if name in row}
        for row in shown
        if step_columns(row) and row["mask seed"] in ("", None, first)
    ]
