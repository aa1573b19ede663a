"""Accuracy of classifiers, and what PRISM spent on it in steps and multiply-accumulates."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

from prism.data.shards import ShardedImages
from prism.metrics.complexity import macs_by_module, step_cost
from prism.model.backbone import Prism
from prism.occlusion.benchmark import step_columns
from prism.occlusion.hiding import Images
from prism.occlusion.runner import Subject, check_finite
from prism.reporting.tables import Row
from prism.tasks.classification.data import OwnImages


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
            if isinstance(network, Prism):
                logits, trace = network.forward_traced(images, slot_maps=False)
                steps += torch.stack([stage.steps.sum() for stage in trace.stages])
            else:
                logits = network(images)
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
