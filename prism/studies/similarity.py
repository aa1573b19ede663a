"""Figure 3B: do features of an occluded image stay closer to those of the clean one than a baseline's do?

The cosine of the two at every token of a stage, averaged; and that of the two maps averaged over tokens (pooled).
"""

from typing import Any

import torch
from matplotlib.lines import Line2D
from torch import Tensor

from prism.analysis.similarity import has_stages, similarities
from prism.data.preprocessing import normalise
from prism.metrics.significance import bootstrap_interval
from prism.studies import study as s

SETTINGS = tuple(setting for setting in s.PAPER_SETTINGS if setting != s.CLEAN)
KINDS = {"tokens": "averaged over tokens", "pooled": "of pooled features"}
# section 4.5 of the paper, on ImageNet: stage 3 under PatchMask0.8, PVTv2-B1 and PRISM
PUBLISHED = (3, "PatchMask0.8", 0.53, 0.71)


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Mean similarity over images, and its bootstrap interval, for every model, setting and stage."""
    subjects, images = inputs.classifiers()
    able = [subject for subject in subjects if has_stages(subject.model)]
    left_out = s.skipped([subject.name for subject in subjects if subject not in able], "it has no maps of four stages")
    if not able:
        raise s.Inapplicable("; ".join(f"{row['what']}: {row['why']}" for row in left_out))
    for subject in able:
        subject.model.eval().to(inputs.device)
    rows = []
    for setting in SETTINGS:
        found: dict[tuple[str, str], list[Tensor]] = {(subject.name, subject.run): [] for subject in able}
        progress(setting.name)
        for clean, occluded, _ in inputs.pairs(images, setting):  # every model on the same batches
            for name, run, model, *normal in able:
                seen = (normalise(part, *normal) for part in (clean, occluded))
                found[name, run].append(similarities(model, *seen).float().cpu())
        for (model, run), parts in found.items():
            which = {"model": model, "run": run, "setting": setting.name}
            rows += [which | row for row in _summary(torch.cat(parts))]
    return {"similarity": rows, s.SKIPPED: left_out}


def _summary(similarities: Tensor) -> list[dict[str, Any]]:
    """One row per stage, from (B, stages, kinds)."""
    rows = []
    for stage, by_kind in enumerate(similarities.unbind(1), start=1):
        row: dict[str, Any] = {"stage": stage}
        for kind, values in zip(KINDS, by_kind.unbind(-1), strict=True):
            low, high = bootstrap_interval(values.numpy())
            row |= {kind: float(values.mean()), f"{kind} low": low, f"{kind} high": high}
        rows.append(row | {"images": len(similarities)})
    return rows


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["similarity"]
    stage, setting, baseline, ours = PUBLISHED
    published = [("PRISM", setting, stage, ours), ("PVTv2-B1", setting, stage, baseline)]
    caption = "Cosine similarity of clean and occluded features"
    if _rivals(rows)[1]:
        caption += (
            ", one model against the other: above the dashed diagonal the model on the vertical axis keeps more. The "
            "star is the pair that the paper publishes"
        )
    table = s.shown(s.stage_table(rows, "tokens", published))
    return s.told(_words(rows), table, f"{caption}.", figure(rows), out / "similarity.png")


def figure(rows: s.Rows) -> s.Figure:
    """One panel per kind. Two models: one against the other, with the diagonal; one model: lines over settings."""
    ours, theirs = _rivals(rows)
    colours = {stage: s.style(number)["color"] for number, stage in enumerate(s.column(rows, "stage"))}
    pairs = [(kind, other) for other in theirs or [None] for kind in KINDS]
    across, down = len(KINDS), len(pairs) // len(KINDS)
    sheet = s.Figure(figsize=(5.4 * across + 1.6, 4.9 * down), layout="constrained")
    for axis, (kind, other) in zip(sheet.subplots(down, across, squeeze=False).flat, pairs, strict=True):
        found = s.means(rows, ["model", "setting", "stage"], kind)
        if other is None:
            _draw_alone(axis, found, ours, colours)
        else:
            _draw_scatter(axis, found, ours, other, colours, kind)
        axis.set(title=KINDS[kind])
        axis.grid(alpha=0.3)
    dot: dict[str, Any] = dict(linestyle="", marker="o")
    handles = [Line2D([], [], color=colour, label=f"stage {stage}", **dot) for stage, colour in colours.items()]
    if theirs:
        handles += [
            Line2D([], [], linestyle="", marker=mark, color="#555555", label=setting.name)
            for setting, mark in zip(SETTINGS, s.MARKERS, strict=True)
        ]
        handles.append(Line2D([], [], label="paper, ImageNet", **_star(colours, 13)))
    sheet.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
    return sheet


def _draw_scatter(axis: Any, found: s.Means, ours: str, other: str, colours: dict[int, str], kind: str) -> None:
    low = min(0.0, *found.values())
    axis.plot([low, 1], [low, 1], color="#555555", linestyle="--", linewidth=1)
    for setting, mark in zip(SETTINGS, s.MARKERS, strict=True):
        for stage, colour in colours.items():
            x, y = (found[model, setting.name, stage] for model in (other, ours))
            axis.plot(x, y, marker=mark, color=colour, markersize=7, alpha=0.9)
    if kind == "tokens":
        axis.plot(*PUBLISHED[2:], **_star(colours, 15))
    axis.set(xlabel=f"{other}: similarity to clean", ylabel=f"{ours}: similarity to clean")
    axis.set(xlim=(low, 1.02), ylim=(low, 1.02), aspect="equal")


def _draw_alone(axis: Any, found: s.Means, model: str, colours: dict[int, str]) -> None:
    names = [setting.name for setting in SETTINGS]
    for number, (stage, colour) in enumerate(colours.items()):
        values = [found[model, name, stage] for name in names]
        axis.plot(names, values, color=colour, marker=s.style(number)["marker"])
    axis.tick_params(axis="x", rotation=30)
    axis.set(ylabel=f"{model}: similarity to clean", ylim=(min(0.0, *found.values()), 1.02))


def _star(colours: dict[int, str], size: float) -> dict[str, Any]:
    edge = colours.get(PUBLISHED[0], "#222222")
    return dict(linestyle="", marker="*", markersize=size, markerfacecolor="white", markeredgecolor=edge)


def _rivals(rows: s.Rows) -> tuple[str, list[str]]:
    """The model on the vertical axis, a PRISM if there is one, and those on the other."""
    models = s.column(rows, "model")
    ours = next((model for model in models if model.startswith("prism_")), models[0])
    return ours, [model for model in models if model != ours]


def _words(rows: s.Rows) -> str:
    ours, theirs = _rivals(rows)
    said = [f"Features of {rows[0]['images']} images with parts hidden are compared with those of the clean images."]
    for kind, what in KINDS.items():
        found = s.means(rows, ["model", "setting", "stage"], kind)
        for other in theirs:
            gaps = [value - found[other, *key[1:]] for key, value in found.items() if key[0] == ours]
            above, mean = sum(gap > 0 for gap in gaps), sum(gaps) / len(gaps)
            said.append(
                f"Similarity {what} is higher for {ours} than for {other} in {above} of {len(gaps)} combinations of "
                f"stage and setting, on average by {mean:+.2f}."
            )
        if not theirs:
            least = min(found, key=lambda key, found=found: found[key])
            said.append(f"Similarity {what} is lowest, {found[least]:.2f}, in stage {least[2]} under {least[1]}.")
    if not theirs:
        said.append("There is no second model to compare with, so the paper's scatter plot is left out.")
    said.append(
        "The paper says that PRISM is above PVTv2-B1 in all stages and settings, and gives one pair of numbers: 0.71 "
        "against 0.53 in stage 3 under PatchMask0.8."
    )
    return " ".join(said)
