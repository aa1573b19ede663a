"""The one runner of all benchmarks of occlusion: every job once, kept in a cache, shared by processes.

What is kept counts only for the very images, labels and weights it was found with.
"""

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor, nn

from prism.data.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from prism.model.backbone import Prism
from prism.model.checks import read_json
from prism.occlusion.fills import Fill
from prism.occlusion.settings import Job, Setting, jobs
from prism.reporting.files import write_text

Found = TypeVar("Found")
Progress = Callable[[str], None]


class Subject(NamedTuple):
    """A model under test. Several of one name are its training runs, told apart by `run`."""

    name: str
    run: str
    model: nn.Module
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """What any benchmark is told, and how it runs.

    `folder` keeps what every finished job found; a second call with the same subjects and images reads it instead of
    measuring again. With `processes`, each of them calls `run`, measures its part of the batches, and is given all
    rows; only the first one reads and writes the folder, and decides for all.
    """

    images: Any
    settings: Sequence[Setting]
    fills: Sequence[Fill] = ("mean",)
    seeds: Sequence[int] = (0,)
    batch: int = 8
    workers: int = 0
    device: str = "cpu"
    folder: Path | None = None
    processes: PartialState | None = None

    @abstractmethod
    def measure(self, subjects: Sequence[Any], job: Job) -> Any:
        """What the subjects make of one job: something that JSON can hold."""

    @abstractmethod
    def describe(self, subjects: Sequence[Any]) -> list[Any]:
        """What the subjects are, down to their weights."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes what was found."""
        return self.processes is None or self.processes.is_main_process

    def jobs(self) -> Iterator[Job]:
        return jobs(self.settings, self.fills, self.seeds)

    def found(self, subjects: Sequence[Any], progress: Progress) -> Iterator[tuple[Job, Any]]:
        """What every job finds, or found before."""
        if not len(self.images):
            raise ValueError("the data set is empty")
        key = [fingerprint_images(self.images), self.describe(subjects)] if self.folder else []
        for job in self.jobs():
            progress(f"{job.setting.name}, {job.filling} fill, mask seed {job.seed}")
            path = self.folder / f"{job.name}.json" if self.folder and self.is_first else None
            kept = [_read(path, key) if path else None]
            if self.processes:
                broadcast_object_list(kept)
            if kept[0] is None:
                kept = [json.loads(json.dumps(self.measure(subjects, job)))]  # as a second call would read it
                if path:
                    write_text(path, json.dumps({"key": key, "digest": _digest_json(kept[0]), "found": kept[0]}))
            yield job, kept[0]

    def own_batches(self, length: int) -> list[list[int]]:
        """Indices of the images that this process sees, batch by batch.

        Processes share the batches, not the images: what a batch holds, and so the last bit of an answer, is the same
        for any number of them.
        """
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, got {self.batch}")
        rank, world = (self.processes.process_index, self.processes.num_processes) if self.processes else (0, 1)
        batches = [list(range(length))[first : first + self.batch] for first in range(0, length, self.batch)]
        return batches[len(batches) * rank // world : len(batches) * (rank + 1) // world]

    def everyones(self, found: Found) -> list[Found]:
        """What each process found, in the order of the images."""
        return gather_object([found]) if self.processes else [found]


def refuse_mixtures(subjects: Iterable[tuple[str, str, nn.Module]]) -> None:
    """Subjects (name, run, network) of one name are averaged as its runs: none may come twice or be of another size."""
    sizes: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for name, run, network in subjects:
        if (name, run) in seen:
            raise ValueError(f"{run} of {name} is named twice")
        seen.add((name, run))
        size = sum(parameter.numel() for parameter in network.parameters())
        if sizes.setdefault(name, size) != size:
            raise ValueError(f"{run} is not of the size of the other runs of {name}: evaluate it separately")


def check_finite(model: str, scores: Tensor, name: Callable[[int], str]) -> None:
    """Stop at scores (B, ...) that are not finite, and name their image: a NaN outranks nothing and seems right."""
    wrong = ~scores.flatten(1).isfinite().all(1)
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise ValueError(f"{model} gave a score that is not finite for {name(place)}")


def ready(networks: Iterable[nn.Module], device: str) -> None:
    """In evaluation mode, on the device. Not in inference mode: weights moved there could never be trained again."""
    for network in networks:
        network.eval().to(device)


def fingerprint(model: nn.Module) -> str:
    """Changes when a weight does, or how the model computes: what is kept must be of this very model."""
    prisms = [module for module in model.modules() if isinstance(module, Prism)]
    switches = [(one.fixed_steps, one.max_steps, one.memory) for one in prisms]
    design = hashlib.sha256(repr(model).encode()).hexdigest()
    return f"{type(model).__name__} {_digest(model.state_dict().values())} {design} {switches}"


def fingerprint_images(images: Any) -> str:
    """Of every file's name, size, time and label where the data set offers it; else of three samples."""
    if hasattr(images, "fingerprint"):
        return images.fingerprint()
    parts = [part for index in (0, len(images) // 2, len(images) - 1) for part in images[index]]
    found = _digest(part if isinstance(part, Tensor) else torch.tensor(part) for part in parts)
    return f"{len(images)} images, three of them {found}"


def _digest(values: Iterable[Tensor]) -> str:
    """Of all bits."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _read(path: Path, key: Any) -> Any:
    """What is kept, unless it is of other models or images. What a bit of was changed or cut off is measured again."""
    if not path.is_file():
        return None
    try:
        kept = read_json(path)
        if kept["digest"] == _digest_json(kept["found"]):
            return kept["found"] if kept["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    print(f"{path} is damaged: it is measured again", file=sys.stderr)
    return None


def _digest_json(found: Any) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()
