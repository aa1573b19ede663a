"""Does the data keep up with the model? Training speed on real batches over that on one batch held in memory."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from prism.data.stream import Batch, Stream
from prism.model.memory import update_codebooks
from prism.recipes.catalogue import task_of
from prism.training import loop
from prism.training.settings import Settings

WARM_UP = 3


def measure(recipe: Settings, steps: int, repeats: int, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Interleaved: `steps` on real batches, as many on a held one, and again. One row a repeat, then the medians."""
    accelerator = loop.start(recipe)
    job = task_of(recipe).build(recipe, accelerator)
    learner = job.learner.train()
    optimiser = torch.optim.AdamW(learner.parameters(), lr=1e-5)
    batches = _endless(job.stream)
    held = next(batches)

    def take(batch: Batch) -> None:
        outcome = learner(batch.pictures, batch.targets)
        optimiser.zero_grad()
        torch.stack(list(outcome.losses.values())).sum().backward()
        optimiser.step()
        update_codebooks(learner)

    def seconds(draw: Callable[[], Batch]) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            take(draw())
        return time.perf_counter() - start

    for _ in range(WARM_UP):
        take(next(batches))
    rows = []
    for repeat in range(1, repeats + 1):
        progress(f"repeat {repeat} of {repeats}")
        real, free = seconds(lambda: next(batches)), seconds(lambda: held)
        pictures = steps * recipe.batch
        rows.append({"repeat": repeat, "fed": pictures / real, "held": pictures / free, "share": 100 * free / real})
    medians = {name: statistics.median(row[name] for row in rows) for name in ("fed", "held", "share")}
    return [*rows, {"repeat": "median", **medians}]


def _endless(stream: Stream) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from stream.epoch(epoch)
        epoch += 1
