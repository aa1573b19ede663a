"""What a study is given: models by their checkpoints, and the images of a data set."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from prism.analysis.pairs import Pair, batches, normalise
from prism.data import sources
from prism.data.segmentation import LabelledImages, open_segmentation
from prism.metrics.average_precision import Annotated
from prism.model.backbone import Prism
from prism.model.creation import Checkpoint, find_checkpoints
from prism.model.weights import read_about
from prism.occlusion.benchmark import OcclusionBenchmark, Pictures, Setting, Subject
from prism.occlusion.detection import DetectorSubject
from prism.studies import detection, segmentation
from prism.studies.material import open_pictures, open_subjects

Kind = Literal["classifiers", "detectors", "segmenters"]
Progress = Callable[[str], None]
TASKS: dict[str, Kind] = {"detection": "detectors", "segmentation": "segmenters"}
SMOKE = "smoke run"


class Inapplicable(ValueError):
    """A study cannot be made with what it was given; the message says why."""


class Classifiers(NamedTuple):
    subjects: list[Subject]
    images: Pictures

    @property
    def prisms(self) -> list[Subject]:
        return [subject for subject in self.subjects if isinstance(subject.model, Prism)]

    @property
    def others(self) -> list[str]:
        """Names of those that are no PRISM."""
        return [subject.name for subject in self.subjects if not isinstance(subject.model, Prism)]

    def all_but(self, chosen: Subject) -> list[str]:
        """Those that a study of one leaves out, in words."""
        rest = [subject.name for subject in self.subjects if subject is not chosen]
        return [name if name != chosen.name else f"another run of {name}" for name in rest]


class Detectors(NamedTuple):
    subjects: list[DetectorSubject]
    images: Annotated


class Segmenters(NamedTuple):
    subjects: list[Subject]
    images: LabelledImages
    classes: list[str]


@dataclass(frozen=True)
class Inputs:
    """Checkpoints and data, and how the one is run on the other.

    `checkpoints` are NAME of a PRISM variant or timm model, NAME=FILE,... with weights of training runs, or
    FILE.safetensors. `quick` asks for as little as still makes every figure, and marks every row.
    """

    checkpoints: tuple[str, ...]
    data: str = "scenes"
    split: str = ""  # by default clean for classified scenes, val otherwise
    limit: int | None = None  # images
    batch: int = 64
    workers: int = 2
    device: str = "cpu"
    quick: bool = False

    @property
    def note(self) -> str:
        return SMOKE if self.quick else ""

    def files(self, kind: Kind | None = None) -> list[Path]:
        """The files of weights, all of one kind if that is asked for."""
        found = self._checkpoints(kind)
        if nameless := next((checkpoint.name for checkpoint in found if not checkpoint.file), None):
            raise Inapplicable(f"{nameless} is a model name; pass a file of weights")
        return [checkpoint.file for checkpoint in found if checkpoint.file]

    def classifiers(self) -> Classifiers:
        found = self._checkpoints("classifiers")
        split = self.split or ("clean" if self.data == "scenes" else "val")
        images, classes = open_pictures(found, self.data, [split], None, self.limit)
        return Classifiers(open_subjects(found, classes), images[split])

    def prisms(self, why: str) -> Classifiers:
        """The same, for a study that needs a PRISM among them."""
        found = self.classifiers()
        if not found.prisms:
            raise Inapplicable(f"{why}, and none of the checkpoints is a PRISM")
        return found

    def detectors(self) -> Detectors:
        files = self.files("detectors")
        images = detection.open_for(files, self.data, self.split or "val", self.limit, masks=True)
        return Detectors(detection.subjects_of(files, images), images)

    def segmenters(self) -> Segmenters:
        files = self.files("segmenters")
        classes = next((c.classes for c in find_checkpoints(str(files[0])) if c.classes), [])
        size = int(read_about(files[0]).get("size", 64))
        samples = open_segmentation(self.data, self.split or "val", size, classes=len(classes))
        subjects = segmentation.subjects_of(files, samples.classes)
        shown = samples if self.limit is None else sources.limited(samples, self.limit)
        return Segmenters(subjects, LabelledImages(shown), list(samples.classes))

    def benchmark(self, images: Pictures, settings: Sequence[Setting], out: Path) -> OcclusionBenchmark:
        """Keeps its predictions in `out`: an interrupted study continues there."""
        return OcclusionBenchmark(images, settings, folder=out / "predictions", batch=self.batch, **self._practical)

    def dense_benchmark(self, out: Path) -> dict[str, Any]:
        """How a benchmark of detectors or segmenters is run; it too keeps what it found."""
        return dict(folder=out / "done", batch=min(self.batch, 8), **self._practical)

    def pairs(self, images: Pictures, setting: Setting) -> Iterator[Pair]:
        return batches(images, setting, self.batch, **self._practical)

    def prism_pairs(
        self, found: Classifiers, settings: Sequence[Setting], progress: Progress
    ) -> Iterator[tuple[dict[str, Any], Prism, Iterator[Pair]]]:
        """For every PRISM and setting: what its rows begin with, the network, and pairs normalised for it."""
        for subject in found.prisms:
            network = subject.model.eval().to(self.device)
            assert isinstance(network, Prism)
            for setting in settings:
                progress(f"{subject.name}, {setting.name}")
                which = {"model": subject.name, "run": subject.run, "setting": setting.name}
                yield which, network, self._normalised(found.images, setting, subject)

    def _normalised(self, images: Pictures, setting: Setting, subject: Subject) -> Iterator[Pair]:
        for clean, occluded, hidden in self.pairs(images, setting):
            clean, occluded = (normalise(part, subject.mean, subject.std) for part in (clean, occluded))
            yield Pair(clean, occluded, hidden)

    @property
    def _practical(self) -> dict[str, Any]:
        return dict(workers=self.workers, device=self.device)

    def _checkpoints(self, kind: Kind | None) -> list[Checkpoint]:
        found = [checkpoint for spec in self.checkpoints for checkpoint in find_checkpoints(spec)]
        if not found:
            raise Inapplicable("there is no checkpoint to evaluate")
        for checkpoint in found if kind else ():
            held = TASKS.get(read_about(checkpoint.file).get("task", ""), "classifiers") if checkpoint.file else kind
            if held != kind:
                raise Inapplicable(f"{checkpoint.file} is one of the {held}, but this study needs {kind}")
        return found
