"""Detection as every command sees it."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState

from prism.data.annotations import Annotated
from prism.data.coco import CocoImages
from prism.data.images import THINNEST
from prism.data.objects import open_annotated
from prism.data.stream import Batch, ShuffledStream, listed
from prism.metrics.average_precision import all_numbers, by_subset, ground_truth
from prism.model.creation import Checkpoint
from prism.model.metadata import model_arguments
from prism.reporting.pages import Section
from prism.reporting.tables import Row, Rows, Tables
from prism.tasks.detection import predict, report
from prism.tasks.detection.data import name_broken, open_for, training_transform
from prism.tasks.detection.evaluate import (
    PAPER_SETTINGS,
    DetectionBenchmark,
    DetectorSubject,
    costs,
    detect,
    measure,
    settings_of,
    told_subsets,
)
from prism.tasks.detection.learner import Detector
from prism.tasks.detection.loading import describe, load_detector
from prism.tasks.detection.network import TITLES, Design, DetectionNetwork, build_network
from prism.tasks.detection.options import DetectionOcclusionOptions
from prism.tasks.detection.recipes import Detection
from prism.tasks.learner import Weights
from prism.tasks.task import Conditions, Job, Progress, Task, by_split, check_classes, ranks_of, with_files


class DetectionTask(Task):
    name = "detection"
    models = "detectors"
    headline = "box AP"
    unit = 100.0
    title = "Detection under occlusion"
    settings = PAPER_SETTINGS
    curves = settings_of(tuple(tenth / 10 for tenth in range(8)))

    def learner(self, recipe: Detection, classes: Sequence[str]) -> Detector:
        torch.manual_seed(recipe.seed)
        network = build_network(design_of(recipe), len(classes), **model_arguments(recipe.network_words()))
        backbone = network.maps.backbone
        if recipe.weights:
            backbone.load(recipe.weights)
        backbone.freeze(recipe.frozen)
        return Detector(network, Weights(recipe.ponder, recipe.vq), recipe.own_losses)

    def job(self, recipe: Detection, accelerator: Accelerator) -> Job:
        ranks = ranks_of(accelerator)
        size, amodal, masks = recipe.sizes[-1], recipe.amodal, recipe.head == "maskrcnn"
        thinnest = min(recipe.longest, THINNEST)  # of a thinner image the network would leave nothing
        trained = open_annotated(recipe.data, "train", size, None, recipe.length, amodal, masks, thinnest)
        shown = open_annotated(recipe.data, recipe.split, size, recipe.limit, None, amodal, masks, thinnest)
        for images in (trained, shown):
            name_broken(images, quiet=ranks.rank > 0)
        check_splits(recipe, trained, shown)
        learner = self.learner(recipe, trained.classes)
        groups = trained.groups() if isinstance(trained, CocoImages) else None
        batch = recipe.batch // recipe.accumulate
        transform = training_transform(recipe.flip)
        stream = ShuffledStream(trained, transform, batch, recipe.seed, ranks, recipe.workers, listed, groups)
        truth = cache(lambda: ground_truth(shown))  # scenes are rendered for it: once, when it is needed

        def measured(network: DetectionNetwork, images: Annotated, *how: Any) -> dict[str, float]:
            return all_numbers(truth(), detect(network, images, *how), network.finds_masks)

        best, network = f"{recipe.split} {'mask' if masks else 'box'} AP", learner.network
        assert isinstance(network, DetectionNetwork)
        arguments = model_arguments(recipe.network_words())
        metadata = describe(network, design_of(recipe), trained.classes, trained.categories, arguments, amodal)
        evaluate = by_split(recipe, {recipe.split: shown}, measured)
        return Job(recipe.model, learner, stream, evaluate, best, metadata.with_training(seed=recipe.seed))

    def random_batch(self, recipe: Detection, classes: int) -> Batch:
        count, side = min(2, recipe.batch), min(recipe.sizes[-1], recipe.longest)
        masks = torch.zeros(1, side, side, dtype=torch.uint8)
        masks[:, side // 4 : side // 2, side // 4 : side // 2] = 1
        box = torch.tensor([[side // 4, side // 4, side // 2, side // 2]]).float()
        targets = [dict(boxes=box, labels=torch.tensor([1 + place % classes]), masks=masks) for place in range(count)]
        return Batch([torch.rand(3, side, side) for _ in range(count)], targets, ["noise"] * count, [])

    def cost(self, recipe: Detection, classes: int) -> str:
        size = (min(recipe.sizes[-1], recipe.longest), recipe.longest)
        found = costs(design_of(recipe), classes, size, **model_arguments(recipe.network_words()))
        own = (recipe.model, recipe.width, classes) == ("prism_tiny", 256, 80)
        paper = f" (paper: {report.PUBLISHED['PRISM'][recipe.head == 'maskrcnn'][0]} M)" if own else ""
        return f"{found.parameters / 1e6:.1f} M parameters{paper}, {found.macs / 1e9:.1f} GMAC at {size[0]} x {size[1]}"

    def open_data(
        self, checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], limit: int | None, options: Any
    ) -> Mapping[str, Annotated]:
        asks_masks = isinstance(options, DetectionOcclusionOptions) or None  # blocks are laid over masks
        return {split: open_for(checkpoints, data, split, limit, options.visible, asks_masks) for split in splits}

    def subjects(self, checkpoints: Sequence[Checkpoint], images: Annotated, options: Any) -> list[DetectorSubject]:
        """The detectors of these files, which must know the classes of the images."""
        name_broken(images, quiet=not PartialState().is_main_process)
        found = []
        for file in with_files(checkpoints):
            network, design, classes, _ = load_detector(file)
            check_classes(file, classes, images.classes)
            title, run = TITLES[design.head], str(file.with_suffix(""))
            found.append(DetectorSubject(design.model, title, run, network, network.finds_masks, images.categories))
        return found

    def evaluate(
        self, subjects: Sequence[DetectorSubject], splits: Mapping[str, Any], conditions: Conditions, progress: Progress
    ) -> list[Row]:
        """COCO's twelve numbers for each detector: of all objects, and of those flagged as occluded.

        Of images that `prism occlusion --write` made, also of the masked objects, of those that a block over another
        one brushes, and of the untouched.
        """
        if conditions.processes is not None:
            # an Accelerator does not take a device by itself
            conditions.processes.device = torch.device(conditions.device)
        accelerator, rows = Accelerator(cpu=torch.device(conditions.device).type == "cpu"), []
        batch = conditions.arguments(self.batch)["batch"]
        for split, images in splits.items():
            truth = ground_truth(images)
            subsets = told_subsets(truth)
            for subject in subjects:
                progress(f"{subject.head} on {subject.backbone}, {split}")
                network: Any = subject.network.to(conditions.device)
                results = detect(network, images, accelerator, batch, conditions.workers)
                found = by_subset(truth, results, subsets, subject.finds_masks)
                rows += [subject.key | {"split": split} | row for row in found]
        return rows

    def shown(self, rows: Rows) -> Rows:
        names = ("backbone", "head", "run", "split", "subset")
        return [
            {"detector": " ".join(str(row[name]) for name in names)} | {n: row[n] for n in row if n not in names}
            for row in rows
        ]

    def predict(self, checkpoint: Checkpoint, images: Sequence[Path], out: Path, **options: Any) -> list[Row]:
        [file] = with_files([checkpoint])
        hidden = predict.Occlusion(options["share"], options["seed"]) if options.get("occlude") else None
        return predict.draw(load_detector(file), images, out, options.get("threshold", 0.5), hidden)

    def occlusion(
        self, subjects: Sequence[Any], images: Any, conditions: Conditions, out: Path, options: Any, progress: Progress
    ) -> Tables:
        how = conditions.arguments(self.batch)
        benchmark = DetectionBenchmark(images, visible=options.visible, folder=out / "done", **how)
        found = measure(benchmark, subjects, out, progress) if subjects else {}
        if options.write and benchmark.is_first:
            found = {**found, "folders": benchmark.write_folders(out, progress)}
        return found

    def report(self, tables: Tables, out: Path) -> list[Section]:
        if "folders" in tables and len(tables) == 1:
            return [Section("COCO folders", f"Written into {out}, with what is hidden there.", tables["folders"])]
        return report.report(tables, out)


def design_of(recipe: Detection) -> Design:
    return Design(**{name: getattr(recipe, name) for name in Design._fields})


def check_splits(recipe: Detection, trained: Any, shown: Any) -> None:
    files = [images.file for images in (trained, shown) if isinstance(images, CocoImages)]
    if len({*files}) < len(files):
        raise ValueError(f"{files[0]} would be trained on and evaluated: split it, as instances_{{train,val}}.json")
    if (trained.categories, trained.classes) != (shown.categories, shown.classes):
        raise ValueError(f"{recipe.data} has other categories in its split {recipe.split} than in train")
    if recipe.classes not in (None, len(trained.classes)):
        count = len(trained.classes)
        raise ValueError(f"the data has {count} classes, the recipe asks for {recipe.classes}: use --classes {count}")


TASK = DetectionTask()
