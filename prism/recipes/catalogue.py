"""Every recipe by its name, and how to run any of them."""

from collections.abc import Callable
from typing import Any

import torch

from prism.metrics.complexity import parameters
from prism.recipes import classification, detection, segmentation
from prism.training import loop, report
from prism.training.settings import Settings

RECIPES: dict[str, Callable[[], Settings]] = {
    "imagenet": classification.imagenet,
    "imagenette": classification.imagenette,
    "scenes": classification.scenes,
    "coco-retinanet": detection.coco_retinanet,
    "coco-maskrcnn": detection.coco_maskrcnn,
    "voc-retinanet": detection.voc_retinanet,
    "voc-maskrcnn": detection.voc_maskrcnn,
    "scenes-retinanet": detection.scenes_retinanet,
    "scenes-maskrcnn": detection.scenes_maskrcnn,
    "ade20k-semfpn": segmentation.ade20k_semfpn,
    "voc-semfpn": segmentation.voc_semfpn,
    "scenes-semfpn": segmentation.scenes_semfpn,
}


def run(recipe: Settings) -> list[dict[str, Any]]:
    """Train a recipe to its end, or on to it, and return the rows of its epochs."""
    accelerator = loop.start(recipe)
    job = task_of(recipe).build(recipe, accelerator)
    rows = loop.train(job, recipe, accelerator)
    if accelerator.is_main_process:
        report.write(recipe)
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return rows


def rehearse(recipe: Settings) -> str:
    """One step on noise: that the recipe fits the machine is seen before its data is there."""
    task = task_of(recipe)
    classes = recipe.classes or 10
    learner = task.learner_of(recipe, classes)
    batch = task.random_batch(recipe, classes)
    outcome = learner(batch.pictures, batch.targets)
    torch.stack(list(outcome.losses.values())).sum().backward()
    losses = ", ".join(f"{name} {float(value.detach()):.3f}" for name, value in outcome.losses.items())
    said = f"{recipe.model}, {parameters(learner.network) / 1e6:.2f} M parameters; one step on noise: {losses}"
    return f"{said}\n{task.cost_line(recipe, classes)}" if hasattr(task, "cost_line") else said


def first_line(name: str) -> str:
    return (RECIPES[name].__doc__ or "").strip().splitlines()[0]


def task_of(recipe: Settings) -> Any:
    """The module that builds a recipe."""
    return {
        classification.Classification: classification,
        detection.Detection: detection,
        segmentation.Segmentation: segmentation,
    }[type(recipe)]
