"""Classification as every command sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from timm.data import Mixup

from prism.data.preprocessing import Preprocessing
from prism.data.sources import OwnImages
from prism.data.stream import Batch
from prism.metrics.complexity import macs_by_module, parameters
from prism.model.backbone import Prism
from prism.model.creation import Checkpoint, check_size, create, open_model
from prism.model.metadata import Metadata, model_arguments
from prism.model.weights import load_weights
from prism.occlusion.benchmark import OcclusionBenchmark, scores
from prism.occlusion.runner import Subject
from prism.occlusion.settings import CURVES, PAPER_SETTINGS
from prism.reporting.pages import Section
from prism.reporting.tables import Row, Rows, Tables
from prism.tasks.classification import data as images_of
from prism.tasks.classification import predict, report
from prism.tasks.classification.evaluate import accuracy, add_costs, measure
from prism.tasks.classification.learner import Classifier
from prism.tasks.classification.options import ClassificationOptions
from prism.tasks.classification.recipes import Classification
from prism.tasks.learner import Weights
from prism.tasks.parsing import whole_numbers
from prism.tasks.task import Conditions, Job, Progress, Task, by_split, check_classes, ranks_of

HIDDEN = ("model", "run", "split", "images", "low", "high")


class ClassificationTask(Task):
    name = "classification"
    models = "classifiers"
    headline = "top-1"
    batch = 64
    split = ""
    title = "Classification under occlusion"
    settings = PAPER_SETTINGS
    curves = CURVES

    def learner(self, recipe: Classification, classes: Sequence[str]) -> Classifier:
        torch.manual_seed(recipe.seed)
        network = create(recipe.model, num_classes=len(classes), **model_arguments(recipe.network_words()))
        check_size(network, recipe.model, (recipe.size, recipe.size))
        if recipe.weights:
            load_weights(network, recipe.weights, but_head=True)
        cutmix = recipe.cutmix if recipe.hiding else 0.0
        mixing = None
        if recipe.mixup or cutmix:
            mixing = Mixup(recipe.mixup, cutmix, label_smoothing=recipe.smoothing, num_classes=len(classes))
        return Classifier(network, recipe.smoothing, mixing, Weights(recipe.ponder, recipe.vq))

    def job(self, recipe: Classification, accelerator: Accelerator) -> Job:
        ranks, classes = ranks_of(accelerator), images_of.class_names(recipe)
        learner = self.learner(recipe, classes)
        preprocessing = Preprocessing.for_network(learner.network, recipe.size, recipe.crop)
        splits = ("held-out",) if recipe.hold_out else recipe.splits
        shown = {split: images_of.evaluation_images(recipe, split, preprocessing, ranks) for split in splits}
        hidden = [name for name in ("erasing", "cutmix", "scattered") if recipe.hiding and getattr(recipe, name)]
        metadata = Metadata(
            model=recipe.model,
            network=model_arguments(recipe.network_words()),
            classes=classes,
            preprocessing=preprocessing.to_metadata(),
            training={"seed": recipe.seed, "hidden in training": ", ".join(hidden) or "nothing"},
        )
        stream = images_of.training_stream(recipe, learner.network, ranks)
        evaluate = by_split(recipe, shown, accuracy)
        return Job(recipe.model, learner, stream, evaluate, f"{splits[0]} {self.headline}", metadata)

    def random_batch(self, recipe: Classification, classes: int) -> Batch:
        count = min(4, recipe.batch)
        images = torch.randn(count, 3, recipe.size, recipe.size)
        return Batch(images, torch.arange(count) % classes, ["noise"] * count, [])

    def cost(self, recipe: Classification, classes: int) -> str:
        network = self.learner(recipe, [""] * classes).network
        if isinstance(network, Prism):
            network.fixed_steps = 1
        macs = macs_by_module(network, (recipe.size, recipe.size))[""]
        steps = " at one step" if isinstance(network, Prism) else ""
        return f"{parameters(network) / 1e6:.2f} M parameters, {macs / 1e9:.2f} GMAC{steps} at {recipe.size} px"

    def open_data(
        self, checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], limit: int | None, options: Any
    ) -> Mapping[str, OwnImages]:
        return images_of.open_images(checkpoints, data, splits, options.size, limit)

    def subjects(
        self, checkpoints: Sequence[Checkpoint], images: OwnImages, options: ClassificationOptions
    ) -> list[Subject]:
        torch.manual_seed(0)  # untrained weights are the same in every process, and in a run that goes on
        height, width = images[0][0].shape[-2:]
        found = []
        for checkpoint in checkpoints:
            network = open_model(checkpoint, len(images.classes), options.pretrained)
            known = checkpoint.classes or images.classes[: int(network.num_classes)]  # pyright: ignore
            if len(images.classes) != int(network.num_classes):  # pyright: ignore[reportArgumentType]
                known = [""] * int(network.num_classes)  # pyright: ignore[reportArgumentType]
            check_classes(checkpoint.file or checkpoint.name, known, images.classes)
            check_size(network, checkpoint.name, (height, width))
            colours = Preprocessing.for_network(network)
            run = "pretrained" if options.pretrained and not checkpoint.file else checkpoint.run
            found.append(Subject(checkpoint.name, run, network, colours.mean, colours.std))
        self._switch([s.model for s in found if isinstance(s.model, Prism)], checkpoints, options)
        return found

    def evaluate(
        self, subjects: Sequence[Subject], splits: Mapping[str, Any], conditions: Conditions, progress: Progress
    ) -> list[Row]:
        rows = []
        for split, images in splits.items():
            progress(split)
            found = OcclusionBenchmark(images, **conditions.arguments(self.batch)).run(subjects)[1]
            own = [{"model": name, "run": run, "split": split, **scores(p)} for (name, run, *_), p in found.items()]
            add_costs(own, subjects, images)
            rows += own
        return rows

    def shown(self, rows: Rows) -> Rows:
        return [{n: row[n] for n in row if n in HIDDEN[:3] or n not in HIDDEN} for row in rows]

    def predict(self, checkpoint: Checkpoint, images: Sequence[Path], out: Path, **options: Any) -> list[Row]:
        preprocessing = Preprocessing.from_metadata(checkpoint.metadata).at(options.get("size"))
        network = open_model(checkpoint)
        check_size(network, checkpoint.name, (preprocessing.size, preprocessing.size))
        return predict.predict(network, images, checkpoint.metadata.names, preprocessing, out, options.get("draw"))

    def occlusion(
        self, subjects: Sequence[Any], images: Any, conditions: Conditions, out: Path, options: Any, progress: Progress
    ) -> Tables:
        benchmark = OcclusionBenchmark(images, folder=out / "predictions", **conditions.arguments(self.batch))
        return measure(benchmark, subjects, out, progress)

    def report(self, tables: Tables, out: Path) -> list[Section]:
        return report.report(tables, out)

    def _switch(
        self, networks: Sequence[Prism], checkpoints: Sequence[Checkpoint], options: ClassificationOptions
    ) -> None:
        if (options.fixed_steps or options.memory) and not networks:
            names = ", ".join(checkpoint.name for checkpoint in checkpoints)
            raise ValueError(f"--fixed-steps and --memory are only for PRISM, not for {names}")
        for network in networks:
            if options.fixed_steps:
                steps = whole_numbers(options.fixed_steps, most=1000)
                network.fixed_steps = steps if len(steps) > 1 else steps[0]
            if options.memory:
                network.memory = options.memory  # pyright: ignore[reportAttributeAccessIssue]


TASK = ClassificationTask()
