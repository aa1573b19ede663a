"""Beyond the paper: how much do slots, memory and FFN contribute, and how sharply do slots divide an image?"""

import math
from collections import defaultdict
from typing import Any

import torch

from prism.analysis.contributions import contributions
from prism.analysis.recovery import stage_inputs
from prism.studies import study as s

SETTINGS = (s.CLEAN, s.Setting("PatchMask", 0.6))
WATCHED = {
    "returned": "what slots return / tokens",
    "mixed": "what the FFN adds / tokens",
    "entropy": "entropy of slot shares",
    "explained": "share of slots' variance that\nthe memory restores",
}


@torch.inference_mode()
def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Means over batches of every figure, for each setting, stage and step."""
    found, rows = inputs.prisms("only PRISM has slots"), []
    for which, network, pairs in inputs.prism_pairs(found, SETTINGS, progress):
        stages: list[Any] = list(network.stages)
        figures: dict[tuple[int, int], list[dict[str, float]]] = defaultdict(list)
        for pair in pairs:
            given = stage_inputs(network, pair.occluded)
            for number, (stage, image) in enumerate(zip(stages, given, strict=True), start=1):
                for t, values in enumerate(contributions(stage, image), start=1):
                    figures[number, t].append(values)
        rows += [
            which
            | {"stage": stage, "step": step}
            | {name: sum(values[name] for values in batch) / len(batch) for name in batch[0]}
            | {"images": len(found.images)}
            for (stage, step), batch in figures.items()
        ]
    forgetful = [subject.name for subject in found.prisms if subject.model.memory == "off"]
    left_out = s.skipped(found.others, "it has no slots")
    return {"diagnosis": rows, s.SKIPPED: left_out + s.skipped(forgetful, "its memory is off: it restores nothing")}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["diagnosis"]
    names = ("model", "stage", "step", *WATCHED, "codes")
    table = [{name: row[name] for name in names} for row in s.where(rows, setting=s.CLEAN.name)]
    caption = "The first step of each stage: clean images filled, PatchMask 0.6 hatched."
    return s.told(_words(rows), table, caption, figure(rows), out / "diagnosis.png")


def figure(rows: s.Rows) -> s.Figure:
    """One row per model, one panel per figure."""
    models, stages = s.column(rows, "model"), s.column(rows, "stage")
    sheet = s.Figure(figsize=(13, 3.2 * len(models)), layout="constrained")
    for line, model in zip(sheet.subplots(len(models), len(WATCHED), squeeze=False), models, strict=True):
        for axis, (name, title) in zip(line, WATCHED.items(), strict=True):
            found = s.means(s.where(rows, model=model, step=1), ["setting", "stage"], name)
            for number, setting in enumerate(SETTINGS):
                at = [stage + 0.4 * (number - 0.5) for stage in stages]
                heights = [found[setting.name, stage] for stage in stages]
                look: dict[str, Any] = dict(color=s.COLOURS[0]) if not number else dict(color="white", hatch="///")
                axis.bar(at, heights, 0.36, edgecolor=s.COLOURS[0], label=setting.name, **look)
            axis.set_title(title, fontsize=10)
            axis.set(xlabel="stage")  # bars stand on 0, and what the memory restores may be below
            axis.set_xticks(stages)
            axis.grid(alpha=0.3, axis="y")
        line[0].set_ylabel(model)
    s.legend_below(sheet, 2)
    return sheet


def _words(rows: s.Rows) -> str:
    said = ["The table is of clean images; `codes` is the number of codes in use per batch."]
    clean, hidden = ((setting.name,) for setting in SETTINGS)
    for model in s.column(rows, "model"):
        own = s.where(rows, model=model)
        returned, mixed, kept = (s.means(own, ["setting"], name) for name in ("returned", "mixed", "explained"))
        said.append(
            f"In {model}, what slots return to tokens is {returned[clean]:.2f} of the tokens' size, and what the FFN "
            f"adds is {mixed[clean]:.2f}."
        )
        if not math.isnan(kept[clean]):
            said.append(
                f"The memory restores {kept[clean]:.0%} of the variance of slots on clean images, {kept[hidden]:.0%} "
                f"under {hidden[0]}."
            )
    return " ".join(said)
