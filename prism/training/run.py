"""A recipe from its beginning, or from where it stopped, to its report; and the rehearsal of one."""

from contextlib import nullcontext
from typing import Any

import torch

from prism.metrics.complexity import parameters
from prism.tasks.classification.recipes import Classification
from prism.tasks.recipe import Recipe
from prism.tasks.registry import find_task
from prism.training import cost, loop, report
from prism.training.lock import locked


def train_recipe(recipe: Recipe) -> list[dict[str, Any]]:
    """Train a recipe to its end, or on to it, and return the rows of its epochs."""
    accelerator = loop.start(recipe)
    with locked(recipe.out) if accelerator.is_main_process else nullcontext():
        job = find_task(recipe.task).job(recipe, accelerator)
        rows = loop.train(job, recipe, accelerator)
        if accelerator.is_main_process:
            report.write(recipe, job.best)
        accelerator.wait_for_everyone()
    accelerator.end_training()
    return rows


def rehearse(recipe: Recipe) -> str:
    """One step on noise: that the recipe fits the machine is seen before its data is there."""
    task, classes = find_task(recipe.task), recipe.classes or 10
    learner = task.learner(recipe, [f"class {number}" for number in range(classes)])
    batch = task.random_batch(recipe, classes)
    outcome = learner(batch.images, batch.targets)
    torch.stack(list(outcome.losses.values())).sum().backward()
    losses = ", ".join(f"{name} {float(value.detach()):.3f}" for name, value in outcome.losses.items())
    first = f"{recipe.model}, {parameters(learner.network) / 1e6:.2f} M parameters; one step on noise: {losses}"
    expected = cost.sentences(recipe, learner.network) if isinstance(recipe, Classification) else []
    return "\n".join([first, task.cost(recipe, classes), *expected])
