"""Beyond the paper: does the memory restore the slots of the clean image, and what would a perfect one be worth?"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from prism.analysis.contributions import explained_share
from prism.analysis.oracle import Memory, Slots, logits_with, no_memory, own_memory, slots_of
from prism.studies import study as s

AS_IS, OFF, PERFECT, RECALLED, NOTHING = (
    "as it is",
    "off",
    "perfect: slots of the clean image",
    "what it recalls for the clean image",
    "slots return nothing",
)


@torch.inference_mode()
def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Accuracy with each memory in every setting; and how close slots come to the clean image's, with and without."""
    found = inputs.prisms("only PRISM has a memory")
    labels = torch.tensor([int(found.images[index][1]) for index in range(len(found.images))], device=inputs.device)
    answers: list[dict[str, Any]] = []
    closeness: list[dict[str, Any]] = []
    for which, network, pairs in inputs.prism_pairs(found, s.PAPER_SETTINGS, progress):
        if network.memory == "off":
            continue
        right: dict[str, int] = defaultdict(int)
        shares: dict[tuple[int, int, str], list[float]] = defaultdict(list)
        first = 0
        for pair in pairs:
            whole = slots_of(network, pair.clean)
            truth = labels[first : first + len(pair.clean)]
            first += len(truth)
            ideal = slots_of(network, pair.clean, no_memory)  # a perfect memory leaves a clean image as it is
            for name, memory in _memories(whole, ideal).items():
                right[name] += int((logits_with(network, pair.occluded, memory).argmax(-1) == truth).sum())
            for stage, steps in enumerate(zip(whole, slots_of(network, pair.occluded), strict=True), start=1):
                for t, (clean, occluded) in enumerate(zip(*steps, strict=True), start=1):
                    shares[stage, t, "grouped"].append(explained_share(clean.grouped, occluded.grouped))
                    shares[stage, t, "restored"].append(explained_share(clean.grouped, occluded.restored))
        answers += [
            which | {"memory": name, "top-1": 100 * count / len(labels), "images": len(labels)}
            for name, count in right.items()
        ]
        closeness += [
            which | {"stage": stage, "step": step, "slots": slots, "share": sum(values) / len(values)}
            for (stage, step, slots), values in shares.items()
        ]
    if not answers:
        raise s.Inapplicable("the memory of every checkpoint is off")
    forgetful = [subject.name for subject in found.prisms if subject.model.memory == "off"]
    left_out = s.skipped(found.others, "it has no memory") + s.skipped(forgetful, "its memory is off")
    return {"memory": answers, "closeness": closeness, s.SKIPPED: left_out}


def _memories(whole: list[list[Slots]], ideal: list[list[Slots]]) -> dict[str, Memory]:
    """By name; of the clean images, `whole` are the slots with the network's memory and `ideal` those without."""
    return {
        AS_IS: own_memory,
        OFF: no_memory,
        PERFECT: _playing(slots.grouped for steps in ideal for slots in steps),
        RECALLED: _playing(slots.restored for steps in whole for slots in steps),
        NOTHING: lambda _, restored: _without_values(restored),
    }


def _playing(slots: Iterable[Tensor]) -> Memory:
    """One after the other, in the order of stages and steps."""
    in_order = iter(slots)
    return lambda *_: next(in_order)


def _without_values(restored: Tensor) -> Tensor:
    where, what = restored.chunk(2, dim=-1)
    return torch.cat([where, torch.zeros_like(what)], dim=-1)


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows, shares = tables["memory"], tables["closeness"]
    found = s.means(rows, ["model", "memory", "setting"], "top-1")
    settings = s.column(rows, "setting")
    accuracy = [
        {"model": model, "memory": memory} | {setting: found[model, memory, setting] for setting in settings}
        for model in s.column(rows, "model")
        for memory in s.column(rows, "memory")
    ]
    caption = (
        "How much of the variance of the clean image's slots those of the occluded image account for, mean of all "
        "steps and batches: grouped, as they enter the memory, and restored, as they leave it. 1 is perfect, 0 no "
        "better than the mean slot."
    )
    drawn = s.save(figure(shares), out / "memory.png")
    return [
        s.Section("", _words(rows, shares), s.shown(accuracy, 1)),
        s.Section("", caption, s.shown(_table(shares))),
        s.Section("", "The same as a figure: filled before the memory, hatched after it.", drawn),
    ]


def _table(shares: s.Rows) -> s.Rows:
    found, stages = s.means(shares, ["model", "setting", "slots", "stage"], "share"), s.column(shares, "stage")
    return [
        {"model": model, "setting": setting, "slots": slots}
        | {f"stage {stage}": found[model, setting, slots, stage] for stage in stages}
        for model in s.column(shares, "model")
        for setting in s.column(shares, "setting")
        for slots in s.column(shares, "slots")
    ]


def figure(shares: s.Rows) -> s.Figure:
    """One row per model, one panel per stage."""
    models, stages, settings = (s.column(shares, name) for name in ("model", "stage", "setting"))
    sheet = s.Figure(figsize=(3.4 * len(stages), 3.4 * len(models)), layout="constrained")
    axes = sheet.subplots(len(models), len(stages), squeeze=False, sharey=True)
    for line, model in zip(axes, models, strict=True):
        found = s.means(s.where(shares, model=model), ["setting", "slots", "stage"], "share")
        for axis, stage in zip(line, stages, strict=True):
            for number, slots in enumerate(("grouped", "restored")):
                at = [place + 0.4 * (number - 0.5) for place in range(len(settings))]
                heights = [found[setting, slots, stage] for setting in settings]
                look: dict[str, Any] = dict(color=s.COLOURS[0]) if not number else dict(color="white", hatch="///")
                axis.bar(at, heights, 0.36, edgecolor=s.COLOURS[0], label=slots, **look)
            axis.axhline(0, color="#444444", linewidth=0.8)
            axis.set(title=f"{model}, stage {stage}")
            axis.set_xticks(range(len(settings)), settings, rotation=40, ha="right", fontsize=8)
            axis.grid(alpha=0.3, axis="y")
        line[0].set_ylabel("share of the clean slots' variance")
    s.legend_below(sheet, 2)
    return sheet


def _words(rows: s.Rows, shares: s.Rows) -> str:
    said = []
    occluded = [setting for setting in s.column(rows, "setting") if setting != s.CLEAN.name]
    for model in s.column(rows, "model"):
        found = s.means(s.where(rows, model=model), ["memory", "setting"], "top-1")
        own, perfect = (
            [found[name, setting] - found[OFF, setting] for setting in occluded] for name in (AS_IS, PERFECT)
        )
        close = s.means(s.where(shares, model=model), ["setting", "slots"], "share")
        closer = [setting for setting in occluded if close[setting, "restored"] > close[setting, "grouped"]]
        said.append(
            f"Compared with no memory, the memory of {model} changes accuracy in the occluded settings by "
            f"{min(own):+.1f} to {max(own):+.1f} points. A perfect one, which gives every step "
            f"exactly the slots of the clean image, would change it by {min(perfect):+.1f} to "
            f"{max(perfect):+.1f} with these weights. In {len(closer)} of {len(occluded)} occluded settings the memory "
            f"brings slots closer to those of the clean image, mean of all stages and steps."
        )
    return " ".join(said)
