"""What a study looks at: models by their checkpoints, and the pictures of a data set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from prism.data.annotations import Annotated
from prism.model.backbone import Prism
from prism.model.creation import Checkpoint, find_checkpoints
from prism.occlusion.benchmark import OcclusionBenchmark, Pictures, Setting, Subject
from prism.reporting.tables import Tables
from prism.tasks.detection.evaluate import DetectorSubject
from prism.tasks.registry import find_task, options
from prism.tasks.task import Hiding, Place

OPTIONS = options("occlusion")
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
    batch: int | None = None  # by default the task's
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
        return Classifiers(*self._opened("classification"))

    def detectors(self) -> Detectors:
        return Detectors(*self._opened("detection"))

    def place(self) -> Place:
        return Place(self.batch, self.workers, self.device)

    def occlusion(self, task: str, settings: Sequence[Setting], out: Path, progress: Callable[[str], None]) -> Tables:
        """The tables of `prism occlusion`, of what the study was given."""
        chosen, (subjects, images) = find_task(task), self._opened(task)
        found = chosen.occlusion(subjects, images, Hiding(settings), self.place(), out, OPTIONS[task](), progress)
        rows, *others = found.items()
        return {"rows": rows[1], **dict(others)}

    def _opened(self, task: str) -> tuple[list[Any], Any]:
        chosen, options = find_task(task), OPTIONS[task]()
        found = self._checkpoints(chosen.models)  # pyright: ignore[reportArgumentType]
        if task != "classification":
            self.files(chosen.models)  # pyright: ignore[reportArgumentType]
        split = self.split or ("clean" if task == "classification" and self.data == "scenes" else "val")
        [images] = chosen.open_data(found, self.data, [split], self.limit, options).values()
        return chosen.subjects(found, images, options), images

    def benchmark(self, pictures: Pictures, settings: Sequence[Setting], out: Path) -> OcclusionBenchmark:
        """Keeps its predictions in `out`: a study that was interrupted goes on there."""
        folder = out / "predictions"
        return OcclusionBenchmark(
            pictures, settings, batch=self.batch or 64, workers=self.workers, device=self.device, folder=folder
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
