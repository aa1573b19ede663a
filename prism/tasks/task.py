"""What every task is: the protocol that training, evaluation, prediction and occlusion are written against."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from accelerate import Accelerator, PartialState
from torch import nn

from prism.data.stream import Batch, Ranks, Stream
from prism.model.creation import Checkpoint
from prism.model.metadata import Metadata
from prism.occlusion.fills import Fill
from prism.occlusion.settings import CLEAN, Setting
from prism.reporting.pages import Section
from prism.reporting.tables import Row, Rows, Tables
from prism.tasks.learner import Learner
from prism.tasks.recipe import Recipe

Progress = Callable[[str], None]
Evaluate = Callable[[nn.Module, Accelerator], dict[str, float]]


@dataclass(frozen=True)
class Job:
    """What is trained, on what, and how it is evaluated."""

    name: str
    learner: Learner
    stream: Stream  # of batches that one process takes at a time: `batch / accumulate` over all processes
    evaluate: Evaluate
    best: str  # the figure whose highest value names the best epoch
    metadata: Metadata  # kept with the weights


class Conditions(NamedTuple):
    """How a benchmark shows images to networks: what it hides and what it puts there, how many at a time, and where."""

    settings: Sequence[Setting] = (CLEAN,)
    fills: Sequence[Fill] = ("mean",)
    seeds: Sequence[int] = (0,)
    batch: int | None = None  # by default the task's
    workers: int = 2
    device: str = "cpu"
    processes: PartialState | None = None

    @classmethod
    def here(cls, device: str, batch: int | None = None, workers: int = 2) -> "Conditions":
        """Of this process among those of a launcher; `device` may be auto."""
        check_device(device)
        processes = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available())
        device = str(processes.device) if device == "auto" else device
        return cls(batch=batch, workers=workers, device=device, processes=processes)

    @property
    def is_first(self) -> bool:
        """Whether this process shows and writes what was found."""
        return self.processes is None or self.processes.is_main_process

    def arguments(self, batch: int) -> dict[str, Any]:
        """For a benchmark whose batch is this unless told."""
        return {**self._asdict(), "batch": batch if self.batch is None else self.batch}


class Task(ABC):
    """One task: its data, networks, loss, metrics, predictions, and how it is measured under occlusion.

    `options` are what the task's part of a command was told: an instance of its class in `options.py`.
    """

    name: ClassVar[str]
    models: ClassVar[str]  # what its networks are called, such as classifiers
    headline: ClassVar[str]  # the metric that names the best epoch
    unit: ClassVar[float] = 1.0  # per cent of the headline that 1 stands for
    batch: ClassVar[int] = 8  # images at a time, unless told
    split: ClassVar[str] = "val"  # of data, unless told
    title: ClassVar[str]  # of its report under occlusion
    settings: ClassVar[tuple[Setting, ...]]  # the paper's
    curves: ClassVar[tuple[Setting, ...]]  # whole curves

    # ---- training

    @abstractmethod
    def learner(self, recipe: Any, classes: Sequence[str]) -> Learner:
        """The network of a recipe and its loss; the seed decides its first weights."""

    @abstractmethod
    def job(self, recipe: Any, accelerator: Accelerator) -> Job:
        """The run that a recipe describes."""

    @abstractmethod
    def random_batch(self, recipe: Any, classes: int) -> Batch:
        """A few images of noise: what a dry run trains on."""

    @abstractmethod
    def cost(self, recipe: Any, classes: int) -> str:
        """What the network of a recipe costs, in a sentence; beside the paper's where it is the paper's."""

    # ---- evaluation and use

    @abstractmethod
    def open_data(
        self, checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], limit: int | None, options: Any
    ) -> Mapping[str, Any]:
        """The data sets that these networks are evaluated on, by split, as they were trained to see them."""

    @abstractmethod
    def subjects(self, checkpoints: Sequence[Checkpoint], images: Any, options: Any) -> list[Any]:
        """The networks, which must know the classes of these images."""

    @abstractmethod
    def evaluate(
        self, subjects: Sequence[Any], splits: Mapping[str, Any], conditions: Conditions, progress: Progress
    ) -> list[Row]:
        """Rows of metrics; the same in every process."""

    def shown(self, rows: Rows) -> Rows:
        """What a terminal has room for."""
        return rows

    @abstractmethod
    def predict(self, checkpoint: Checkpoint, images: Sequence[Path], out: Path, **options: Any) -> list[Row]:
        """Write what the network finds in image files into `out`; return rows to show."""

    # ---- occlusion

    @abstractmethod
    def occlusion(
        self, subjects: Sequence[Any], images: Any, conditions: Conditions, out: Path, options: Any, progress: Progress
    ) -> Tables:
        """Measure; the first table is of scores. What is done is kept in `out`, so that a second call goes on."""

    @abstractmethod
    def report(self, tables: Tables, out: Path) -> list[Section]:
        """The sections of a page, from the tables alone as they are read back; figures go into `out`."""


def check_device(device: str) -> None:
    """Refuse what torch does not know, and what it knows but this machine does not have."""
    try:
        if device != "auto":
            torch.ones(1, device=device).item()  # `meta` takes tensors, but computes nothing
    except Exception as error:  # of some torch finds no module
        raise ValueError(f"the device {device!r} cannot be used: {str(error).partition(chr(10))[0]}") from None


def ranks_of(accelerator: Accelerator) -> Ranks:
    return Ranks(accelerator.process_index, accelerator.num_processes)


def by_split(recipe: Recipe, shown: Mapping[str, Any], measure: Callable[..., dict[str, float]]) -> Evaluate:
    """Evaluates a network on the images of each split, by `measure(network, images, accelerator, batch, workers)`."""

    def evaluate(network: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        figures, batch = {}, max(1, recipe.batch // recipe.accumulate // accelerator.num_processes)
        for split, images in shown.items():
            found = measure(network, images, accelerator, batch, recipe.workers)
            figures |= {f"{split} {name}": value for name, value in found.items()}
        return figures

    return evaluate


def task_of(checkpoints: Sequence[Checkpoint], asked: str | None = None) -> str:
    """What these models are for: what their weights say, and classification where there are none."""
    for checkpoint in (checkpoint for checkpoint in checkpoints if checkpoint.file):
        own = checkpoint.metadata.task
        asked = asked or own
        if own != asked:
            raise ValueError(f"{checkpoint.file} is for {own}, not for {asked}")
    return asked or "classification"


def with_files(checkpoints: Sequence[Checkpoint]) -> list[Path]:
    """The files of checkpoints that must have one."""
    for checkpoint in checkpoints:
        if not checkpoint.file:
            raise ValueError(f"{checkpoint.name} has no weights: pass a weights file")
    return [checkpoint.file for checkpoint in checkpoints if checkpoint.file]


def check_classes(source: Any, known: Sequence[str], asked: Sequence[str]) -> None:
    if [*known] != [*asked]:
        raise ValueError(f"{source} knows {len(known)} classes, which are not the {len(asked)} of the data")
