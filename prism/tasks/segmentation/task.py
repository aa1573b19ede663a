"""Segmentation as every command sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from prism.data.label_maps import VOID, LabelledImages, open_segmentation
from prism.data.sources import Labelled, limited
from prism.data.stream import Batch, ShuffledStream
from prism.model.creation import Checkpoint
from prism.model.metadata import model_arguments
from prism.occlusion.runner import Subject
from prism.reporting.pages import Section
from prism.reporting.tables import Row, Rows, Tables
from prism.tasks.learner import Weights
from prism.tasks.parsing import numbers
from prism.tasks.segmentation import predict, report
from prism.tasks.segmentation.data import training_transform
from prism.tasks.segmentation.evaluate import (
    CURVE,
    PAPER_SETTINGS,
    SegmentationBenchmark,
    costs,
    in_training,
    measure,
    subjects_of,
)
from prism.tasks.segmentation.learner import Segmenter
from prism.tasks.segmentation.network import SemanticFPN
from prism.tasks.segmentation.options import InferenceOptions
from prism.tasks.segmentation.recipes import Segmentation
from prism.tasks.task import Conditions, Job, Progress, Task, by_split, ranks_of


class SegmentationTask(Task):
    name = "segmentation"
    models = "segmenters"
    headline = "mIoU"
    unit = 100.0
    title = "Segmentation under occlusion"
    settings = PAPER_SETTINGS
    curves = CURVE

    def learner(self, recipe: Segmentation, classes: Sequence[str]) -> Segmenter:
        torch.manual_seed(recipe.seed)
        arguments = model_arguments(recipe.network_words())
        network = SemanticFPN(recipe.model, classes, recipe.width, recipe.dropout, **arguments)
        if recipe.weights:
            network.backbone.load(recipe.weights)
        return Segmenter(network, Weights(recipe.ponder, recipe.vq) if recipe.own_losses else None)

    def job(self, recipe: Segmentation, accelerator: Accelerator) -> Job:
        ranks = ranks_of(accelerator)
        train = _open(recipe, "train")
        shown = {split: limited(_open(recipe, split), recipe.limit) for split in recipe.splits}
        learner = self.learner(recipe, train.classes)
        network = learner.network
        transform = training_transform(
            recipe.size, network.mean, network.std, recipe.fit, recipe.scales, recipe.flip, recipe.distortion
        )
        batch = recipe.batch // recipe.accumulate
        stream = ShuffledStream(train, transform, batch, recipe.seed, ranks, recipe.workers)

        def measured(network: SemanticFPN, samples: Labelled, *how: Any) -> dict[str, float]:
            return in_training(network, samples, recipe.fit, *how)

        metadata = network.metadata(recipe.size, recipe.fit).with_training(seed=recipe.seed)
        evaluate = by_split(recipe, shown, measured)
        return Job(recipe.model, learner, stream, evaluate, f"{recipe.splits[0]} {self.headline}", metadata)

    def random_batch(self, recipe: Segmentation, classes: int) -> Batch:
        if classes > VOID:
            raise ValueError(f"masks of one byte per pixel hold at most {VOID} classes, got {classes}")
        count = min(2, recipe.batch)
        labels = torch.randint(classes, (count, recipe.size, recipe.size), dtype=torch.uint8)
        labels[:, 0] = VOID
        return Batch(torch.randn(count, 3, recipe.size, recipe.size), labels, ["noise"] * count, [])

    def cost(self, recipe: Segmentation, classes: int) -> str:
        names = [f"class {number}" for number in range(classes)]
        size, macs = costs(self.learner(recipe, names).network, (recipe.size, recipe.size))
        own = (recipe.model, recipe.width, recipe.size, classes) == ("prism_tiny", 256, 512, 150)
        parameters, flops = (f" (paper: {text})" if own else "" for text in report.PUBLISHED["PRISM"][:2])
        at = f"{recipe.size} x {recipe.size}"
        return f"{size / 1e6:.1f} M parameters{parameters}, {macs / 1e9:.1f} GMAC{flops} at {at}"

    def open_data(
        self, checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], limit: int | None, options: Any
    ) -> Mapping[str, LabelledImages]:
        first = checkpoints[0]
        found = {}
        for split in splits:
            samples = open_segmentation(data, split, first.size or 64, classes=len(first.classes or []))
            found[split] = LabelledImages(limited(samples, limit))
        return found

    def subjects(
        self, checkpoints: Sequence[Checkpoint], images: LabelledImages, options: InferenceOptions
    ) -> list[Subject]:
        how = {**options._asdict(), "scales": numbers(options.scales, 0.05, 10)}
        return subjects_of(checkpoints, images.classes, **how)

    def evaluate(
        self, subjects: Sequence[Subject], splits: Mapping[str, Any], conditions: Conditions, progress: Progress
    ) -> list[Row]:
        """mIoU, pixel accuracy and boundary IoU, one row per split, model and run."""
        rows = []
        for split, images in splits.items():
            how = conditions.arguments(self.batch)
            found, _ = SegmentationBenchmark(images, classes=images.classes, **how).run(subjects, progress)
            rows += [{"model": row.pop("model"), "run": row.pop("run"), "split": split, **row} for row in found]
        return rows

    def shown(self, rows: Rows) -> Rows:
        names = ("model", "run", "split", "images", "mIoU", "pixel accuracy", "boundary IoU")
        return [{name: row[name] for name in names} for row in rows]

    def predict(self, checkpoint: Checkpoint, images: Sequence[Path], out: Path, **options: Any) -> list[Row]:
        [subject] = subjects_of([checkpoint], checkpoint.classes or [], **options)
        return predict.segment(subject, checkpoint.classes or [], images, out)

    def occlusion(
        self, subjects: Sequence[Any], images: Any, conditions: Conditions, out: Path, options: Any, progress: Progress
    ) -> Tables:
        how = conditions.arguments(self.batch)
        benchmark = SegmentationBenchmark(images, classes=images.classes, folder=out / "done", **how)
        return measure(benchmark, subjects, out, progress)

    def report(self, tables: Tables, out: Path) -> list[Section]:
        return report.report(tables, out)


def _open(recipe: Segmentation, split: str) -> Labelled:
    length = recipe.length if split == "train" else None
    return open_segmentation(recipe.data, split, recipe.size, length, recipe.classes)


TASK = SegmentationTask()
