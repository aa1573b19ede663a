"""What a study is given: models by their checkpoints, and the images of a data set."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from prism.analysis.pairs import Pair, batches
from prism.data.preprocessing import normalise
from prism.model.backbone import Prism
from prism.model.creation import Checkpoint, find_checkpoints
from prism.occlusion.benchmark import OcclusionBenchmark
from prism.occlusion.hiding import Images
from prism.occlusion.runner import Subject
from prism.occlusion.settings import Setting
from prism.reporting.tables import Rows, Tables
from prism.tasks.registry import find_task, options
from prism.tasks.task import Conditions, task_of

OPTIONS = options("occlusion")
Progress = Callable[[str], None]
SMOKE = "smoke run"


class Inapplicable(ValueError):
    """A study cannot be made with what it was given; the message says why."""


class Classifiers(NamedTuple):
    subjects: list[Subject]
    images: Images

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
    batch: int | None = None  # by default the task's
    workers: int = 2
    device: str = "cpu"
    quick: bool = False

    @property
    def note(self) -> str:
        return SMOKE if self.quick else ""

    def files(self, task: str | None = None) -> list[Path]:
        """The files of weights, all of one task if that is asked for."""
        found = self._checkpoints(task)
        if nameless := next((checkpoint.name for checkpoint in found if not checkpoint.file), None):
            raise Inapplicable(f"{nameless} is a model name; pass a file of weights")
        return [checkpoint.file for checkpoint in found if checkpoint.file]

    def classifiers(self) -> Classifiers:
        return Classifiers(*self._opened("classification"))

    def prisms(self, why: str) -> Classifiers:
        """The same, for a study that needs a PRISM among them."""
        found = self.classifiers()
        if not found.prisms:
            raise Inapplicable(f"{why}, and none of the checkpoints is a PRISM")
        return found

    def occlusion(self, task: str, settings: Sequence[Setting], out: Path, progress: Progress) -> tuple[Rows, Tables]:
        """The rows of `prism occlusion`, and its other tables."""
        chosen, (subjects, images) = find_task(task), self._opened(task)
        conditions = Conditions(settings, batch=self.batch, workers=self.workers, device=self.device)
        found = chosen.occlusion(subjects, images, conditions, out, OPTIONS[task](), progress)
        (_, rows), *others = found.items()
        return rows, dict(others)

    def benchmark(self, images: Images, settings: Sequence[Setting], out: Path) -> OcclusionBenchmark:
        """Keeps its predictions in `out`: an interrupted study continues there."""
        return OcclusionBenchmark(images, settings, folder=out / "predictions", **self._practical)

    def pairs(self, images: Images, setting: Setting) -> Iterator[Pair]:
        return batches(images, setting, **self._practical)

    def prism_pairs(
        self, found: Classifiers, settings: Sequence[Setting], progress: Progress
    ) -> Iterator[tuple[dict[str, Any], Prism, Iterator[Pair]]]:
        """For every PRISM and setting: what its rows begin with, the network, and pairs normalised for it."""
        for subject in found.prisms:
            network = self.ready(subject)
            for setting in settings:
                progress(f"{subject.name}, {setting.name}")
                which = {"model": subject.name, "run": subject.run, "setting": setting.name}
                yield which, network, self._normalised(found.images, setting, subject)

    def ready(self, subject: Subject) -> Prism:
        """The network of a PRISM, in evaluation mode and on the device."""
        network = subject.model.eval().to(self.device)
        assert isinstance(network, Prism)
        return network

    def _normalised(self, images: Images, setting: Setting, subject: Subject) -> Iterator[Pair]:
        for clean, occluded, hidden in self.pairs(images, setting):
            clean, occluded = (normalise(part, subject.mean, subject.std) for part in (clean, occluded))
            yield Pair(clean, occluded, hidden)

    @property
    def _practical(self) -> dict[str, Any]:
        return dict(batch=self.batch or 64, workers=self.workers, device=self.device)

    def _opened(self, task: str) -> tuple[list[Any], Any]:
        """The networks of a task and the images they are evaluated on."""
        chosen, told, found = find_task(task), OPTIONS[task](), self._checkpoints(task)
        if task != "classification":
            self.files()  # a name alone has no weights for these
        split = self.split or ("clean" if task == "classification" and self.data == "scenes" else "val")
        [images] = chosen.open_data(found, self.data, [split], self.limit, told).values()
        return chosen.subjects(found, images, told), images

    def _checkpoints(self, task: str | None = None) -> list[Checkpoint]:
        found = [checkpoint for spec in self.checkpoints for checkpoint in find_checkpoints(spec)]
        if not found:
            raise Inapplicable("there is no checkpoint to evaluate")
        if task:
            try:
                task_of(found, task)
            except ValueError as error:
                raise Inapplicable(str(error)) from None
        return found
