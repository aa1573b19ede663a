"""Does each step bring an occluded picture closer to the clean one? Cosines of features, stage by stage, step by step.

A stage takes what the stage before it made of the occluded picture, and is stopped after 1, 2, ... T_max steps; each
state is compared with what the stage makes of the clean picture.

B images, T steps, (H, W) tokens and D channels of a stage.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from prism.model.backbone import Prism
from prism.model.position import sincos_positions
from prism.model.refinement import Refinement, Watch
from prism.model.stage import Stage
from prism.occlusion.benchmark import CLEAN, Setting
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.pairs import Pair, as_seen, batches, hidden_tokens
from prism.studies.study import (
    SKIPPED,
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

SETTINGS = (
    CLEAN,
    Setting("PatchMask", 0.6),
    Setting("PatchMask", 0.8),
    Setting("BlockMask", 112),
    Setting("OnlyOne", 112),
)
HALTED = "halted"  # the stage's own output, where its halting unit stops


def closeness(network: Prism, clean: Tensor, occluded: Tensor) -> list[Tensor]:
    """Mean cosine over tokens after each step, a (B, T) tensor a stage; images are normalised, (B, 3, H, W)."""
    return [cosines.mean((-2, -1)) for cosines in closeness_by_token(network, clean, occluded)]


@torch.inference_mode()
def closeness_by_token(network: Prism, clean: Tensor, occluded: Tensor) -> list[Tensor]:
    """The cosine of every token after each step, a (B, T, H, W) tensor a stage."""
    wanted = network.pyramid(clean).features
    stages: list[Any] = list(network.stages)
    given = [occluded, *network.pyramid(occluded).features[:-1]]
    return [
        torch.stack([F.cosine_similarity(state, target, dim=1) for state in states(stage, image)], dim=1)
        for stage, image, target in zip(stages, given, wanted, strict=True)
    ]


class Applied(NamedTuple):
    """One application of Phi."""

    before: Tensor  # (B, N, D), x^t
    refinement: Refinement
    grid: tuple[int, int]  # H, W


def applications(stage: Stage, image: Tensor, watch: Watch) -> Iterator[Applied]:
    """Each of `max_steps` steps of a stage, halting aside."""
    tokens = stage.tokeniser(image)
    batch, height, width, dim = tokens.shape
    hoisted = stage.step.hoisted(sincos_positions(height, width, dim, like=tokens))
    tokens, slots = tokens.flatten(1, 2), stage.initial_slots.repeat(batch, 1, 1)
    for _ in range(stage.max_steps):
        refinement = stage.step(tokens, slots, hoisted, watch)
        yield Applied(tokens, refinement, (height, width))
        tokens, slots = refinement.tokens, stage.step.next_slots(slots, refinement.where)


def states(stage: Stage, image: Tensor) -> Iterator[Tensor]:
    """What the stage would give if it stopped after 1, 2, ... `max_steps` steps: X^t in the paper, (B, D, H, W)."""
    for _, refinement, grid in applications(stage, image, Watch()):
        yield stage.norm(refinement.tokens).unflatten(1, grid).permute(0, 3, 1, 2)


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Mean cosine over tokens and pictures, for every setting, stage and step; of hidden tokens, visible ones, and all.

    The clean picture itself is measured too, as a control: what a stage has left to do when nothing is hidden.
    """
    found = material.classifiers()
    if not found.prisms:
        raise Inapplicable("only PRISM takes steps, and there is none among the checkpoints")
    rows = []
    for subject in found.prisms:
        network = subject.model.eval().to(material.device)
        assert isinstance(network, Prism)
        for setting in SETTINGS:
            progress(f"{subject.name}, {setting.name}")
            totals: dict[tuple[int, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
            for pair in batches(found.pictures, setting, material.batch, material.workers, material.device):
                clean, occluded = (as_seen(images, subject) for images in (pair.clean, pair.occluded))
                _add(totals, network, Pair(clean, occluded, pair.hidden))
            which = {"model": subject.name, "run": subject.run, "setting": setting.name}
            rows += [
                which | {"stage": stage, "step": step, "tokens": tokens, "cosine": total / count, "count": int(count)}
                for (stage, step, tokens), (total, count) in totals.items()
                if count
            ]
    others = [s.name for s in found.subjects if s not in found.prisms]
    return {
        "recovery": [row | {"images": len(found.pictures)} for row in rows],
        SKIPPED: skipped(others, "it takes no steps"),
    }


def _add(totals: dict[tuple[int, str, str], list[float]], network: Prism, pair: Pair) -> None:
    clean, occluded, hidden = pair
    after_steps = closeness_by_token(network, clean, occluded)
    with torch.inference_mode():
        as_halted = [
            F.cosine_similarity(a, b, dim=1)
            for a, b in zip(network.pyramid(occluded).features, network.pyramid(clean).features, strict=True)
        ]
    for stage, (cosines, halted) in enumerate(zip(after_steps, as_halted, strict=True), start=1):
        unseen = hidden_tokens(hidden, (halted.shape[-2], halted.shape[-1]))
        every = {"all": torch.ones_like(unseen), "hidden": unseen, "visible": ~unseen}
        named = {str(t): cosines[:, t - 1] for t in range(1, cosines.shape[1] + 1)} | {HALTED: halted}
        for step, values in named.items():
            for name, chosen in every.items():
                entry = totals[stage, step, name]
                entry[0] += float(values[chosen].sum())
                entry[1] += int(chosen.sum())


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["recovery"]
    caption = (
        "Similarity to the clean picture after each step: solid of tokens more than half hidden, dashed of visible "
        "ones; the grey line is the control, the clean picture itself. A cross is the output where the stage really "
        "halts."
    )
    return [
        Section(STUDY.title, _words(rows), shown(_table(rows), 3)),
        Section("", caption, save(figure(rows), out / "recovery.png")),
    ]


def figure(rows: Rows) -> Figure:
    """A row a model, a panel a stage."""
    models = column(rows, "model")
    sheet = Figure(figsize=(13, 3.6 * len(models)), layout="constrained")
    axes = sheet.subplots(len(models), len(STAGES), squeeze=False, sharey="row", sharex=True)
    for line, model in zip(axes, models, strict=True):
        found = means([row for row in rows if row["model"] == model], ["setting", "stage", "tokens", "step"], "cosine")
        for axis, stage in zip(line, STAGES, strict=True):
            for number, setting in enumerate(SETTINGS):
                for tokens, style in (("all", "-"),) if setting == CLEAN else (("hidden", "-"), ("visible", "--")):
                    curve = _curve(found, setting.name, stage, tokens)
                    if not curve:
                        continue
                    colour = "#888888" if setting == CLEAN else COLOURS[number - 1]
                    label = f"{setting.name}, {tokens}" if setting != CLEAN else "clean (control)"
                    axis.plot(range(1, len(curve) + 1), curve, color=colour, linestyle=style, marker=".", label=label)
                    axis.plot(
                        len(curve) + 0.5, found[setting.name, stage, tokens, HALTED], "x", color=colour, markersize=6
                    )
            axis.set(title=f"{model}, stage {stage}", xlabel="step")
            ticks = range(1, 1 + max(len(_curve(found, s.name, stage, "all")) for s in SETTINGS))
            axis.set_xticks([*ticks, len(ticks) + 0.5], [*map(str, ticks), "halted"])
            axis.grid(alpha=0.3)
        line[0].set(ylabel="cosine to the clean picture")
    handles, labels = sheet.axes[0].get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return sheet


def _curve(found: dict[tuple[Any, ...], float], setting: str, stage: int, tokens: str) -> list[float]:
    steps = sorted(int(key[3]) for key in found if key[:3] == (setting, stage, tokens) and key[3] != HALTED)
    return [found[setting, stage, tokens, str(step)] for step in steps]


def _table(rows: Rows) -> Rows:
    """Hidden tokens, the mean over the settings."""
    own = [row for row in rows if row["tokens"] == "hidden"]
    found = means(own, ["model", "stage", "step"], "cosine")
    return [
        {"model": model, "stage": stage}
        | {f"step {step}" if step != HALTED else step: found.get((model, stage, step)) for step in column(own, "step")}
        for model in column(own, "model")
        for stage in STAGES
    ]


def _words(rows: Rows) -> str:
    said = ["The table gives hidden tokens, averaged over the settings."]
    for model in column(rows, "model"):
        own = [row for row in rows if row["model"] == model]
        found = means(own, ["setting", "stage", "tokens", "step"], "cosine")
        nearer, gain = [], []
        for stage in STAGES:
            curves = [_curve(found, setting.name, stage, "hidden") for setting in SETTINGS if setting != CLEAN]
            moves = [later - earlier for curve in curves for earlier, later in pairwise(curve)]
            nearer.append(f"{sum(move > 0 for move in moves)} of {len(moves)}")
            control = _curve(found, CLEAN.name, stage, "all")
            ends = [curve[-1] - curve[0] for curve in curves if curve]
            gain.append(f"{sum(ends) / len(ends):+.2f} ({control[-1] - control[0]:+.2f})" if ends else "none")
        said.append(
            f"In stages 1 to 4 of {model}, over all settings, {', '.join(nearer)} of the further steps bring hidden "
            f"tokens closer to the clean picture. From the first step to the last their similarity changes by "
            f"{', '.join(gain)}; in brackets the change for the clean picture itself, the control."
        )
    return " ".join(said)


STUDY = Study(
    "recovery",
    "Recovery, step by step",
    "does each step bring the features of an occluded picture closer to those of the clean one?",
    "",
    "a PRISM classifier",
    "classifiers",
    measure,
    report,
)
