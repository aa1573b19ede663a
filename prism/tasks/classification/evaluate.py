"""Accuracy of classifiers on whole images and with parts hidden, and what PRISM spent in steps and MACs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from matplotlib.figure import Figure
from torch import nn
from torch.utils.data import DataLoader

from prism.data.shards import ShardedImages
from prism.data.sources import OwnImages
from prism.metrics.complexity import macs_by_module, parameters, step_cost
from prism.model.backbone import Prism, logits_and_trace
from prism.occlusion.benchmark import Key, OcclusionBenchmark, Predictions, step_columns
from prism.occlusion.hiding import Images, Occluded
from prism.occlusion.runner import Subject, check_finite
from prism.occlusion.settings import Job
from prism.reporting.figures import image_grid, pixels, save
from prism.reporting.tables import Row, Tables
from prism.tasks.classification.report import retention_table, significance_table
from prism.tasks.task import Progress


@torch.inference_mode()
def accuracy(
    network: nn.Module, own: OwnImages | ShardedImages, accelerator: Accelerator, batch: int, workers: int
) -> dict[str, float]:
    """Top-1 and top-5 in per cent, loss, and PRISM's mean steps; over the `own` images of all processes."""
    batches: Iterable[Any] = DataLoader(own, batch, num_workers=workers)
    device = accelerator.device
    # one parameter tells the width of all: a float64 run is evaluated in float64
    dtype = next(network.parameters()).dtype
    totals = torch.zeros(4, dtype=torch.float64, device=device)
    steps = torch.zeros(len(network.stages) if isinstance(network, Prism) else 0, dtype=torch.float64, device=device)
    for number, (images, labels, *told) in enumerate(batches):
        images, labels = images.to(device, dtype), labels.to(device)
        with accelerator.autocast():
            logits, trace = logits_and_trace(network, images)
        if trace is not None:
            steps += torch.stack([stage.steps.sum() for stage in trace.stages])
        # shards tell names with their images, as no place in them is known
        names = told[0] if told else [own.name(number * batch + place) for place in range(len(labels))]  # pyright: ignore
        check_finite("the network", logits, names.__getitem__)
        rank = (logits > logits.gather(1, labels[:, None])).sum(1)
        loss = F.cross_entropy(logits.float(), labels, reduction="sum")
        hits, near = (rank == 0).sum(), (rank < 5).sum()
        totals += torch.stack([hits.double(), near.double(), loss.double(), torch.tensor(len(labels)).to(loss)])
    hits, near, loss, count = accelerator.reduce(totals).tolist()  # pyright: ignore
    figures = {"top-1": 100 * hits / count, "top-5": 100 * near / count, "loss": loss / count}
    for stage, total in enumerate(accelerator.reduce(steps).tolist(), start=1):  # pyright: ignore
        figures[f"steps {stage}"] = total / count
    return figures


def add_costs(rows: Sequence[Row], subjects: Sequence[Subject], images: Images) -> None:
    """Add GMACs of a mean image to the rows of a benchmark."""
    height, width = images[0][0].shape[-2:]
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
        return lambda row: cost.macs([row[name] for name in step_columns(row)])
    macs = macs_by_module(model, size)[""]
    return lambda _: macs


SHOWN = 3  # images of the examples
WIDEST = 8  # of them in a row
NAMED = 3  # models whose answers are marked


def measure(benchmark: OcclusionBenchmark, subjects: Sequence[Subject], out: Path, progress: Progress) -> Tables:
    """Rows with parameters and GMACs, what is kept of clean accuracy, and McNemar's test of each pair of models."""
    rows, predictions = benchmark.run(subjects, progress)
    if not benchmark.is_first:
        return {}
    add_costs(rows, subjects, benchmark.images)
    sizes = {subject.name: parameters(subject.model) for subject in subjects}
    rows = [{**row, "parameters": sizes[row["model"]]} for row in rows]
    save(examples(benchmark, predictions), out / "examples.png", dpi=110)
    return {
        "occlusion": rows,
        "significance": significance_table(predictions, benchmark.fills[0]) if len(sizes) > 1 else [],
        "retention": retention_table(rows, benchmark.fills[0]),
    }


def examples(benchmark: OcclusionBenchmark, predictions: Mapping[Key, Predictions]) -> Figure:
    """Images under every setting, and under every fill if there are several; and which models were right."""
    images, settings, fills, seed = benchmark.images, benchmark.settings, benchmark.fills, benchmark.seeds[0]
    variants = [(Job(s, fills[0], seed), s.name) for s in settings]
    if len(fills) > 1:
        last = next((s for s in settings if s.name == "BlockMask112"), settings[-1])
        variants += [(Job(last, f, seed), f"{last.name}, {f}") for f in fills[1:]]
    first_runs: dict[str, str] = {}
    for name, run, *_ in predictions:
        first_runs.setdefault(name, run)

    def tile(index: int, job: Job, title: str) -> tuple[Any, str]:
        of_job = job.setting.name, job.filling, job.seed
        ranks = {run: predictions[*run, *of_job].rank[index] for run in first_runs.items()}
        answers = [f"{'✗' if rank else '✓'} {name}" for (name, _), rank in ranks.items()]
        return pixels(Occluded(images, *job)[index][0]), "\n".join([title, *answers[:NAMED]])

    places = [index * (len(images) // SHOWN) for index in range(min(SHOWN, len(images)))]
    lines = [variants[first : first + WIDEST] for first in range(0, len(variants), WIDEST)]
    return image_grid([[tile(index, *variant) for variant in line] for index in places for line in lines], 1.7)
