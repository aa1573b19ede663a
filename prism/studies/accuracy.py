"""Accuracy on whole pictures, split by split, and what PRISM spent on them in steps and multiply-accumulates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accelerate import PartialState
from torch import nn

from prism.metrics.complexity import macs_by_module, step_cost
from prism.model.backbone import Prism
from prism.occlusion.benchmark import CLEAN, OcclusionBenchmark, Pictures, Subject, scores

STEPS = ("steps 1", "steps 2", "steps 3", "steps 4")
SHOWN = ("model", "run", "split", "top-1", "top-5", "balanced", "calibration error", *STEPS, "GMAC")


def measure(
    subjects: Sequence[Subject],
    splits: Mapping[str, Pictures],
    batch: int,
    workers: int,
    device: str,
    processes: PartialState | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """A row for each split, model and run; the same ones in every process."""
    rows = []
    for split, pictures in splits.items():
        progress(split)
        whole = OcclusionBenchmark(pictures, (CLEAN,), batch=batch, workers=workers, device=device, processes=processes)
        found = whole.run(subjects)[1]
        own = [{"model": name, "run": run, "split": split, **scores(p)} for (name, run, *_), p in found.items()]
        add_costs(own, subjects, pictures)
        rows += own
    return rows


def add_costs(rows: Sequence[dict[str, Any]], subjects: Sequence[Subject], pictures: Pictures) -> None:
    """Add GMACs of a mean picture to the rows of a benchmark."""
    height, width = pictures[0][0].shape[-2:]
    kinds = {(s.name, s.run): _kind(s) for s in subjects}
    models = {kinds[s.name, s.run]: s.model for s in subjects}
    costs = {kind: _cost(model, (height, width)) for kind, model in models.items()}
    for row in rows:
        row["GMAC"] = costs[kinds[row["model"], row["run"]]](row) / 1e9


def _kind(subject: Subject) -> tuple[Any, ...]:
    """Subjects that agree in this cost the same: runs of one model, and PRISM under other switches of its steps."""
    memory = subject.model.memory if isinstance(subject.model, Prism) else None
    return subject.name, memory, tuple(parameter.shape for parameter in subject.model.parameters())


def _cost(model: nn.Module, size: tuple[int, int]) -> Callable[[dict[str, Any]], float]:
    """MACs of a mean image of a row: PRISM's follow the steps it really took."""
    if isinstance(model, Prism):
        cost = step_cost(model, size)
        return lambda row: cost.macs([row[name] for name in STEPS])
    macs = macs_by_module(model, size)[""]
    return lambda _: macs
