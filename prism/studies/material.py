"""What a study looks at: models by their checkpoints, and the pictures of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from timm.data import resolve_data_config
from torch import nn

from prism.data import sources
from prism.data.annotations import Annotated
from prism.data.preprocessing import Preprocessing
from prism.data.segmentation import LabelledImages, open_segmentation
from prism.model.backbone import Prism
from prism.model.creation import Checkpoint, find_checkpoints, open_model
from prism.model.metadata import Metadata
from prism.occlusion.benchmark import OcclusionBenchmark, Pictures, Setting, Subject
from prism.occlusion.detection import DetectorSubject
from prism.studies import detection, segmentation
from prism.tasks.classification import OwnPictures

Kind = Literal["classifiers", "detectors", "segmenters"]
TASKS: dict[str, Kind] = {"detection": "detectors", "segmentation": "segmenters"}
SMOKE = "smoke run"


class Inapplicable(ValueError):
    """A study cannot be made of what it was given; it says why."""


class Classifiers(NamedTuple):
    subjects: list[Subject]
    pictures: Pictures

    @property
    def prisms(self) -> list[Subject]:
        return [subject for subject in self.subjects if isinstance(subject.model, Prism)]


class Detectors(NamedTuple):
    subjects: list[DetectorSubject]
    pictures: Annotated


class Segmenters(NamedTuple):
    subjects: list[Subject]
    pictures: LabelledImages
    classes: list[str]


@dataclass(frozen=True)
class Material:
    """Checkpoints and data, and how they are looked at.

    `checkpoints` are NAME of a PRISM variant or timm model, NAME=FILE,... with weights of training runs, or
    FILE.safetensors. `quick` asks for as little as still makes every figure, and marks every row.
    """

    checkpoints: tuple[str, ...]
    data: str = "scenes"
    split: str = ""  # clean of classified scenes, val otherwise
    limit: int | None = None  # pictures
    batch: int = 64
    workers: int = 2
    device: str = "cpu"
    quick: bool = False

    @property
    def note(self) -> str:
        return SMOKE if self.quick else ""

    def files(self, kind: Kind | None = None) -> list[Path]:
        """The files of weights, of one kind if that is asked for."""
        found = self._checkpoints(kind)
        if nameless := next((checkpoint.name for checkpoint in found if not checkpoint.file), None):
            raise Inapplicable(f"{nameless} is a name without a file of weights")
        return [checkpoint.file for checkpoint in found if checkpoint.file]

    def classifiers(self) -> Classifiers:
        found = self._checkpoints("classifiers")
        split = self.split or ("clean" if self.data == "scenes" else "val")
        pictures, classes = open_pictures(found, self.data, [split], None, self.limit)
        return Classifiers(open_subjects(found, classes), pictures[split])

    def detectors(self) -> Detectors:
        files = self.files("detectors")
        pictures = detection.open_for(files, self.data, self.split or "val", self.limit, masks=True)
        return Detectors(detection.subjects_of(files, pictures), pictures)

    def segmenters(self) -> Segmenters:
        files = self.files("segmenters")
        [first] = find_checkpoints(str(files[0]))
        samples = open_segmentation(self.data, self.split or "val", first.size or 64, classes=len(first.classes or []))
        subjects = segmentation.subjects_of(files, samples.classes)
        shown = samples if self.limit is None else sources.limited(samples, self.limit)
        return Segmenters(subjects, LabelledImages(shown), list(samples.classes))

    def benchmark(self, pictures: Pictures, settings: Sequence[Setting], out: Path) -> OcclusionBenchmark:
        """Keeps its predictions in `out`: a study that was interrupted goes on there."""
        folder = out / "predictions"
        return OcclusionBenchmark(
            pictures, settings, batch=self.batch, workers=self.workers, device=self.device, folder=folder
        )

    def _checkpoints(self, kind: Kind | None) -> list[Checkpoint]:
        found = [checkpoint for spec in self.checkpoints for checkpoint in find_checkpoints(spec)]
        if not found:
            raise Inapplicable("there is no checkpoint to look at")
        for checkpoint in found if kind else ():
            held = TASKS.get(checkpoint.metadata.task, "classifiers") if checkpoint.file else kind
            if held != kind:
                raise Inapplicable(f"{checkpoint.file} is one of the {held}, and this study is of {kind}")
        return found


def open_pictures(
    checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], size: int | None, limit: int | None
) -> tuple[dict[str, Pictures], list[str]]:
    """Pictures by split, and their classes: those that a file of weights names, or the train split, or the first."""
    described = next((c.metadata for c in checkpoints if c.size), Metadata())
    preprocessing = Preprocessing.from_metadata(described).at(size)
    scenes = data == "scenes"
    classes = None if scenes else next((c.classes for c in checkpoints if c.classes), None)
    length = (1000 if limit is None else limit) if scenes else None
    found: dict[str, Pictures] = {}
    for split in [split or "clean" for split in splits] if scenes else splits:
        pictures = sources.open_pictures(data, split, preprocessing.size, length, classes=classes)
        classes = pictures.classes
        shown = pictures if limit is None or scenes else sources.limited(pictures, limit)
        found[split] = OwnPictures(shown, preprocessing.unit)
    return found, classes or []


def open_subjects(checkpoints: Sequence[Checkpoint], classes: list[str], pretrained: bool = False) -> list[Subject]:
    """The classifiers of these checkpoints, which must know these classes."""
    torch.manual_seed(0)  # untrained weights are the same in every process, and in a run that goes on
    subjects = []
    for checkpoint in checkpoints:
        network = open_model(checkpoint, len(classes), pretrained)
        known = checkpoint.classes or [""] * int(network.num_classes)  # pyright: ignore[reportArgumentType]
        if len(known) != len(classes) or (checkpoint.classes and known != classes):
            source = checkpoint.file or checkpoint.name
            raise ValueError(f"{source} knows {len(known)} classes, which are not the {len(classes)} of the data")
        subjects.append(_subject(checkpoint, network, pretrained))
    return subjects


def _subject(checkpoint: Checkpoint, network: nn.Module, pretrained: bool) -> Subject:
    cfg = resolve_data_config(model=network)
    file, kind = checkpoint.file, "pretrained" if pretrained else "untrained"
    return Subject(checkpoint.name, str(file.with_suffix("")) if file else kind, network, cfg["mean"], cfg["std"])
