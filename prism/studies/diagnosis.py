"""Where is the work of a PRISM done? What slots, memory and FFN contribute, stage by stage and step by step.

B images, N tokens, K slots, D channels.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from prism.model.backbone import Prism
from prism.model.refinement import RefinementStep, Watch
from prism.model.stage import Stage
from prism.occlusion.benchmark import CLEAN, Setting
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.pairs import as_seen, batches
from prism.studies.recovery import applications
from prism.studies.study import SKIPPED, STAGES, Progress, Section, Study, Tables, column, means, save, skipped

SETTINGS = (CLEAN, Setting("PatchMask", 0.6))
WATCHED = {
    "returned": "what slots return / tokens",
    "mixed": "what the FFN adds / tokens",
    "entropy": "entropy of slot shares",
    "explained": "of slots, share that the memory restores",
}


def slot_entropy(shares: Tensor) -> float:
    """How undecided slots are over a token: 0 if one takes it all, 1 if all K take the same. (B, K, N) shares."""
    return float(torch.special.entr(shares).sum(1).mean()) / math.log(shares.shape[1])


def relative_size(part: Tensor, whole: Tensor) -> float:
    """Root mean square of one over that of the other."""
    return float((part.square().mean() / whole.square().mean()).sqrt())


def explained_share(wanted: Tensor, found: Tensor) -> float:
    """1 - (squared error) / (variance over slots and images): 1 is perfect, 0 no better than the mean."""
    around_mean = wanted - wanted.mean((0, 1))
    return float(1 - (wanted - found).square().sum() / around_mean.square().sum())


@contextmanager
def _inside(step: RefinementStep) -> Iterator[dict[str, Tensor]]:
    """What enters the FFN, and what enters and leaves the memory, of the last application of the step."""
    seen: dict[str, Tensor] = {}
    memory = step.memory

    def see_ffn(_: Any, given: tuple[Any, ...]) -> None:
        seen["after slots"] = given[0]

    def see_memory(_: Any, given: tuple[Any, ...], got: tuple[Any, ...]) -> None:
        seen["grouped"] = torch.cat([memory.where_norm(given[0]), memory.what_norm(given[1])], -1)
        seen["restored"] = torch.cat([got[0], got[1]], -1)

    handles = [step.token_ffn.register_forward_pre_hook(see_ffn), memory.register_forward_hook(see_memory)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def steps_of(stage: Stage, image: Tensor) -> Iterator[dict[str, float]]:
    """The figures of each of `max_steps` steps, halting aside."""
    with _inside(stage.step) as seen:
        for before, (after, _, shares, recall), _ in applications(stage, image, Watch(maps=True)):
            assert shares is not None
            yield {
                "returned": relative_size(seen["after slots"] - before, before),
                "mixed": relative_size(after - seen["after slots"], before),
                "entropy": slot_entropy(shares),
                "explained": explained_share(seen["grouped"], seen["restored"]) if _restores(stage) else math.nan,
                "codes": len(recall.codes.unique()) if recall.codes is not None else math.nan,
            }


def _restores(stage: Stage) -> bool:
    return stage.step.memory.mode != "off"


@torch.inference_mode()
def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Means over batches of every figure, for each setting, stage and step."""
    found = material.classifiers()
    if not found.prisms:
        raise Inapplicable("only PRISM has slots, and there is none among the checkpoints")
    rows = []
    for subject in found.prisms:
        network = subject.model.eval().to(material.device)
        assert isinstance(network, Prism)
        stages: list[Any] = list(network.stages)
        for setting in SETTINGS:
            progress(f"{subject.name}, {setting.name}")
            figures: dict[tuple[int, int], list[dict[str, float]]] = defaultdict(list)
            for pair in batches(found.pictures, setting, material.batch, material.workers, material.device):
                images = as_seen(pair.occluded, subject)
                given = [images, *network.pyramid(images).features[:-1]]
                for number, (stage, image) in enumerate(zip(stages, given, strict=True), start=1):
                    for t, values in enumerate(steps_of(stage, image), start=1):
                        figures[number, t].append(values)
            rows += [
                {"model": subject.name, "run": subject.run, "setting": setting.name, "stage": stage, "step": step}
                | {name: sum(values[name] for values in batch) / len(batch) for name in batch[0]}
                for (stage, step), batch in figures.items()
            ]
    others = [s.name for s in found.subjects if s not in found.prisms]
    forgetful = [s.name for s in found.prisms if s.model.memory == "off"]  # pyright: ignore
    return {
        "diagnosis": [row | {"images": len(found.pictures)} for row in rows],
        SKIPPED: skipped(others, "it has no slots") + skipped(forgetful, "its memory is off: it restores nothing"),
    }


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["diagnosis"]
    clean = [row for row in rows if row["setting"] == CLEAN.name]
    names = ("model", "stage", "step", *WATCHED, "codes")
    caption = "The first step of each stage: whole pictures filled, with PatchMask 0.6 hatched."
    return [
        Section(STUDY.title, _words(rows), [{name: row[name] for name in names} for row in clean]),
        Section("", caption, save(figure(rows), out / "diagnosis.png")),
    ]


def figure(rows: Rows) -> Figure:
    """A row a model, a panel a figure."""
    models = column(rows, "model")
    sheet = Figure(figsize=(13, 3.2 * len(models)), layout="constrained")
    for line, model in zip(sheet.subplots(len(models), len(WATCHED), squeeze=False), models, strict=True):
        first = [row for row in rows if row["model"] == model and row["step"] == 1]
        for axis, (name, title) in zip(line, WATCHED.items(), strict=True):
            found = means(first, ["setting", "stage"], name)
            for number, setting in enumerate(SETTINGS):
                at = [stage + 0.4 * (number - 0.5) for stage in STAGES]
                heights = [found[setting.name, stage] for stage in STAGES]
                style: dict[str, Any] = dict(color=COLOURS[0]) if not number else dict(color="white", hatch="///")
                axis.bar(at, heights, 0.36, edgecolor=COLOURS[0], label=setting.name, **style)
            axis.set_title(title, fontsize=10)
            axis.set(xlabel="stage")  # bars stand on 0, and what the memory restores may be below
            axis.set_xticks(STAGES)
            axis.grid(alpha=0.3, axis="y")
        line[0].set_ylabel(model)
    sheet.legend(*sheet.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return sheet


def _words(rows: Rows) -> str:
    said = ["The table is of whole pictures; `codes` are those in use in a batch."]
    for model in column(rows, "model"):
        found = means([row for row in rows if row["model"] == model], ["setting"], "returned")
        mixed = means([row for row in rows if row["model"] == model], ["setting"], "mixed")
        kept = means([row for row in rows if row["model"] == model], ["setting"], "explained")
        (clean,), (hidden,) = ((setting.name,) for setting in SETTINGS)
        said.append(
            f"In {model}, what slots return to tokens has {found[clean,]:.2f} of the tokens' size, what the FFN adds "
            f"{mixed[clean,]:.2f}."
        )
        if not math.isnan(kept[clean,]):
            said.append(
                f"The memory restores {kept[clean,]:.0%} of the variance of slots on whole pictures, "
                f"{kept[hidden,]:.0%} under {hidden}."
            )
    return " ".join(said)


STUDY = Study(
    "diagnosis",
    "Where the work is done",
    "how much do slots, memory and FFN contribute, and how decided are slots?",
    "",
    "a PRISM classifier",
    "classifiers",
    measure,
    report,
)
