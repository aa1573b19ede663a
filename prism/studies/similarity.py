"""Figure 3B: do features of an occluded picture stay close to those of the clean one?

The cosine of the two at every token of a stage, averaged; and that of the two maps averaged over tokens (pooled).
B images, D channels, (H, W) tokens of a stage.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor, nn

from prism.baselines.pyramid import STRIDES
from prism.metrics.significance import bootstrap_interval
from prism.model.backbone import Prism
from prism.occlusion.benchmark import CLEAN, PAPER_SETTINGS, Subject
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.pairs import as_seen, batches
from prism.studies.study import (
    MARKERS,
    SKIPPED,
    STAGE_COLOURS,
    STAGES,
    Progress,
    Section,
    Study,
    Tables,
    column,
    means,
    save,
    shown,
    skipped,
)

SETTINGS = tuple(setting for setting in PAPER_SETTINGS if setting != CLEAN)
KINDS = {"tokens": "averaged over tokens", "pooled": "of pooled features"}
# section 4.5 of the paper, on ImageNet: stage 3 under PatchMask0.8, PVTv2-B1 and PRISM
PUBLISHED = (3, "PatchMask0.8", 0.53, 0.71)


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Mean similarity over pictures, and its bootstrap interval, for every model, setting and stage."""
    subjects, pictures = material.classifiers()
    able = [subject for subject in subjects if _has_maps(subject.model)]
    left_out = skipped([s.name for s in subjects if s not in able], "it does not show its four maps")
    if not able:
        raise Inapplicable("; ".join(f"{row['what']}: {row['why']}" for row in left_out))
    for subject in able:
        subject.model.eval().to(material.device)
    rows = []
    for setting in SETTINGS:
        found: dict[tuple[str, str], list[Tensor]] = {(s.name, s.run): [] for s in able}
        progress(setting.name)
        for clean, occluded, _ in batches(pictures, setting, material.batch, material.workers, material.device):
            for subject in able:
                found[subject.name, subject.run].append(_similarities(subject, clean, occluded))
        for (model, run), parts in found.items():
            which = {"model": model, "run": run, "setting": setting.name}
            rows += [which | row for row in _summary(torch.cat(parts))]
    return {"similarity": rows, SKIPPED: left_out}


@torch.inference_mode()
def stage_maps(model: nn.Module, images: Tensor) -> list[Tensor]:
    """The maps of four stages (B, D, H, W): strides 4 to 32 where there are such, otherwise of four depths."""
    if isinstance(model, Prism):
        return model.pyramid(images).features
    network: Any = model
    reductions = [info["reduction"] for info in network.feature_info]
    if set(STRIDES) <= set(reductions):
        chosen = [len(reductions) - 1 - reductions[::-1].index(stride) for stride in STRIDES]
    else:
        chosen = [round(len(reductions) * quarter / 4) - 1 for quarter in range(1, 5)]
    return network.forward_intermediates(images, indices=chosen, intermediates_only=True)


def cosines(clean: Tensor, occluded: Tensor) -> dict[str, Tensor]:
    """Of maps (B, D, H, W), by kind: (B,) each."""
    return {
        "tokens": F.cosine_similarity(clean, occluded, dim=1).mean((-2, -1)),
        "pooled": F.cosine_similarity(clean.mean((-2, -1)), occluded.mean((-2, -1)), dim=1),
    }


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["similarity"]
    drawn = save(figure(rows), out / "similarity.png")
    return [Section(STUDY.title, _words(rows), shown(_table(rows))), Section("", _caption(rows), drawn)]


def figure(rows: Rows) -> Figure:
    """A panel a kind. Two models: one against the other, with the diagonal; one model: lines over settings."""
    models = column(rows, "model")
    ours, theirs = _rivals(models)
    pairs = [(kind, other) for other in theirs for kind in KINDS] or [(kind, None) for kind in KINDS]
    across, down = len(KINDS), len(pairs) // len(KINDS)
    sheet = Figure(figsize=(5.4 * across + 1.6, 4.9 * down), layout="constrained")
    for axis, (kind, other) in zip(sheet.subplots(down, across, squeeze=False).flat, pairs, strict=True):
        found = means(rows, ["model", "setting", "stage"], kind)
        if other is None:
            _draw_alone(axis, found, ours, kind)
        else:
            _draw_scatter(axis, found, ours, other, kind)
    stages = [Line2D([], [], linestyle="", marker="o", color=STAGE_COLOURS[s], label=f"stage {s}") for s in STAGES]
    marks = [
        Line2D([], [], linestyle="", marker=mark, color="#555555", label=setting.name)
        for setting, mark in zip(SETTINGS, MARKERS, strict=True)
    ]
    star = Line2D([], [], linestyle="", marker="*", markersize=13, markerfacecolor="white", label="paper, ImageNet")
    star.set(markeredgecolor=STAGE_COLOURS[PUBLISHED[0]])
    handles = [*stages, *marks, star] if theirs else stages
    sheet.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
    return sheet


def _draw_scatter(axis: Any, found: dict[tuple[Any, ...], float], ours: str, other: str, kind: str) -> None:
    low = min(0.0, *found.values())
    axis.plot([low, 1], [low, 1], color="#555555", linestyle="--", linewidth=1)
    for setting, mark in zip(SETTINGS, MARKERS, strict=True):
        for stage in STAGES:
            x, y = (found[model, setting.name, stage] for model in (other, ours))
            axis.plot(x, y, marker=mark, color=STAGE_COLOURS[stage], markersize=7, alpha=0.9)
    if kind == "tokens":
        stage, _, x, y = PUBLISHED
        look = dict(marker="*", markersize=15, markerfacecolor="white", markeredgecolor=STAGE_COLOURS[stage])
        axis.plot(x, y, linestyle="", **look)
    axis.set(xlabel=f"{other}: similarity to clean", ylabel=f"{ours}: similarity to clean", title=KINDS[kind])
    axis.set(xlim=(low, 1.02), ylim=(low, 1.02), aspect="equal")
    axis.grid(alpha=0.3)


def _draw_alone(axis: Any, found: dict[tuple[Any, ...], float], model: str, kind: str) -> None:
    names = [setting.name for setting in SETTINGS]
    for stage in STAGES:
        values = [found[model, name, stage] for name in names]
        axis.plot(names, values, color=STAGE_COLOURS[stage], marker=MARKERS[stage - 1])
    axis.tick_params(axis="x", rotation=30)
    axis.set(ylabel=f"{model}: similarity to clean", title=KINDS[kind], ylim=(min(0.0, *found.values()), 1.02))
    axis.grid(alpha=0.3)


def _rivals(models: list[str]) -> tuple[str, list[str]]:
    """The model on the upright axis, a PRISM if there is one, and those on the other."""
    ours = next((model for model in models if model.startswith("prism_")), models[0])
    return ours, [model for model in models if model != ours]


def _has_maps(model: nn.Module) -> bool:
    return isinstance(model, Prism) or (hasattr(model, "forward_intermediates") and len(_infos(model)) >= len(STAGES))


def _infos(model: nn.Module) -> list[Any]:
    return list(getattr(model, "feature_info", []))


def _similarities(subject: Subject, clean: Tensor, occluded: Tensor) -> Tensor:
    """(B, stages, kinds)."""
    before, after = (stage_maps(subject.model, as_seen(images, subject)) for images in (clean, occluded))
    found = [cosines(a, b) for a, b in zip(before, after, strict=True)]
    return torch.stack([torch.stack([one[kind] for kind in KINDS], dim=-1) for one in found], dim=1).float().cpu()


def _summary(similarities: Tensor) -> list[dict[str, Any]]:
    rows = []
    for stage in STAGES:
        row: dict[str, Any] = {"stage": stage}
        for kind, values in zip(KINDS, similarities[:, stage - 1].unbind(-1), strict=True):
            low, high = bootstrap_interval(values.numpy())
            row |= {kind: float(values.mean()), f"{kind} low": low, f"{kind} high": high}
        rows.append(row | {"images": len(similarities)})
    return rows


def _table(rows: Rows) -> Rows:
    found = means(rows, ["model", "setting", "stage"], "tokens")
    ours = [
        {"model": model, "setting": setting} | {f"stage {stage}": found[model, setting, stage] for stage in STAGES}
        for model in column(rows, "model")
        for setting in column(rows, "setting")
    ]
    stage, setting, baseline, prism = PUBLISHED
    theirs = [
        {"model": f"{name} (paper, ImageNet)", "setting": setting}
        | {f"stage {s}": value if s == stage else None for s in STAGES}
        for name, value in (("PRISM", prism), ("PVTv2-B1", baseline))
    ]
    return [*ours, *theirs]


def _words(rows: Rows) -> str:
    ours, theirs = _rivals(column(rows, "model"))
    said = [f"Features of {rows[0]['images']} pictures with parts hidden are compared with those of the whole ones."]
    for kind, what in KINDS.items():
        found = means(rows, ["model", "setting", "stage"], kind)
        for other in theirs:
            gaps = {key[1:]: value - found[other, *key[1:]] for key, value in found.items() if key[0] == ours}
            above = sum(gap > 0 for gap in gaps.values())
            mean = sum(gaps.values()) / len(gaps)
            said.append(
                f"Similarity {what} is higher for {ours} than for {other} in {above} of {len(gaps)} pairs of a stage "
                f"and a setting, on average by {mean:+.2f}."
            )
        if not theirs:
            least = min((key for key in found), key=lambda key, found=found: found[key])
            said.append(f"Similarity {what} is lowest, {found[least]:.2f}, in stage {least[2]} under {least[1]}.")
    if not theirs:
        said.append("There is no second model to compare with: the scatter of the paper is left out.")
    said.append(
        "The paper says that PRISM is above PVTv2-B1 in all stages and settings, and gives one pair in numbers: stage "
        "3 under PatchMask0.8, 0.71 against 0.53."
    )
    return " ".join(said)


def _caption(rows: Rows) -> str:
    _, theirs = _rivals(column(rows, "model"))
    if not theirs:
        return "Cosine similarity of clean and occluded features."
    return (
        "Cosine similarity of clean and occluded features, one model against the other: above the dashed diagonal "
        "the upright axis' model keeps more. The star is the pair that the paper publishes."
    )


STUDY = Study(
    "similarity",
    "Features of clean and occluded pictures",
    "do features of an occluded picture stay closer to those of the clean one than a baseline's do?",
    "Figure 3B",
    "a PRISM classifier and a baseline",
    "classifiers",
    measure,
    report,
)
