"""Does the data keep up with the model? Training speed on real batches over that on batches held in memory."""

import copy
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from prism.data.stream import Batch, Stream
from prism.metrics.speed import Runner, with_steps
from prism.model.memory import update_codebooks
from prism.tasks.classification.learner import Classifier
from prism.tasks.learner import Learner
from prism.tasks.recipe import Recipe
from prism.tasks.registry import find_task
from prism.training import loop

WARM_UP = 3


def measure(recipe: Recipe, steps: int, repeats: int, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Interleaved: `steps` on real batches, as many on held ones, and again. One row per repeat, then the medians.

    As many batches are held as a turn takes: on one alone PRISM would soon halt earlier than on real ones.
    """
    accelerator = loop.start(recipe)
    job = find_task(recipe.task).job(recipe, accelerator)
    learner = job.learner.train()
    optimiser = torch.optim.AdamW(learner.parameters(), lr=1e-5)
    batches = _endless(job.stream)
    held = list(islice(batches, steps))

    def seconds(source: Iterable[Batch]) -> float:
        start = time.perf_counter()
        for batch in islice(source, steps):
            take_step(learner, optimiser, batch.images, batch.targets)
        return time.perf_counter() - start

    for _ in range(WARM_UP):
        batch = next(batches)
        take_step(learner, optimiser, batch.images, batch.targets)
    rows = []
    for repeat in range(1, repeats + 1):
        progress(f"repeat {repeat} of {repeats}")
        real, free = seconds(batches), seconds(held)
        images = steps * recipe.batch
        rows.append({"repeat": repeat, "fed": images / real, "held": images / free, "share": 100 * free / real})
    medians = {name: statistics.median(row[name] for row in rows) for name in ("fed", "held", "share")}
    return [*rows, {"repeat": "median", **medians}]


def take_step(learner: Learner, optimiser: Optimizer, images: Any, targets: Any) -> None:
    outcome = learner(images, targets)
    optimiser.zero_grad()
    torch.stack(list(outcome.losses.values())).sum().backward()
    optimiser.step()
    update_codebooks(learner)


def trainer(model: nn.Module, means: Sequence[float] | None) -> Runner:
    """For `make_cases`: trains a copy of a classifier on any images, a step each; a PRISM takes these mean steps."""
    learner = Classifier(with_steps(copy.deepcopy(model), means)).train()
    optimiser = torch.optim.AdamW(learner.parameters(), lr=1e-5)

    @torch.inference_mode(False)  # which is on around what is timed
    def run(images: Tensor) -> None:
        take_step(learner, optimiser, images, torch.arange(len(images)))

    return run


def _endless(stream: Stream) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from stream.epoch(epoch)
        epoch += 1
