"""How well does a model stand occlusion? The protocol, for any models and any data set.

Every model sees the same pixels. A setting is measured once for each mask seed, and its predictions are kept, so that
an interrupted run goes on where it stopped. Processes of a launcher share the batches.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from prism.data.sources import original_index
from prism.metrics.significance import balanced_mean, bootstrap_interval, calibration_error
from prism.model.backbone import Prism
from prism.occlusion.fills import Fill, fill
from prism.occlusion.masks import block_mask, mask_generator, only_one_mask, patch_mask

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Found = TypeVar("Found")
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # of scores; and of what else a benchmark tells


class Pictures(Protocol):
    """A data set of (image (3, H, W) in [0, 1], label): what the benchmark asks for."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Tensor, int]: ...


class Setting(NamedTuple):
    """A way of hiding and how much of it: a ratio of cells, or a side for 224 px."""

    kind: Literal["clean", "PatchMask", "BlockMask", "OnlyOne"]
    strength: float = 0

    @property
    def name(self) -> str:
        return self.kind if self.kind == "clean" else f"{self.kind}{self.strength:g}"

    def mask(self, size: tuple[int, int], generator: torch.Generator) -> Tensor:
        match self.kind:
            case "clean":
                return torch.zeros(size, dtype=torch.bool)
            case "PatchMask":
                return patch_mask(size, self.strength, generator)
            case "BlockMask":
                return block_mask(size, self.strength, generator)
            case "OnlyOne":
                return only_one_mask(size, self.strength, generator)


CLEAN = Setting("clean")
PAPER_SETTINGS = (
    CLEAN,
    Setting("PatchMask", 0.6),
    Setting("PatchMask", 0.8),
    Setting("BlockMask", 56),
    Setting("BlockMask", 112),
    Setting("OnlyOne", 112),
    Setting("OnlyOne", 56),
)
SIDES = (28, 56, 84, 112, 140, 168, 196)
CURVES = (
    CLEAN,
    *(Setting("PatchMask", round(0.1 * tenth, 1)) for tenth in range(1, 10)),
    *(Setting("BlockMask", side) for side in SIDES),
    *(Setting("OnlyOne", side) for side in reversed(SIDES)),
)


def jobs(
    settings: Sequence[Setting], fills: Sequence[Fill], seeds: Sequence[int]
) -> Iterator[tuple[Setting, Fill, int]]:
    """All that is measured; clean once, since neither fill nor seed changes it."""
    for setting in settings:
        if setting == CLEAN:
            yield setting, fills[0], seeds[0]
        else:
            for filling in fills:
                for seed in seeds:
                    yield setting, filling, seed


class Occluded(Dataset[tuple[Tensor, int]]):
    """A data set under one setting: image (3, H, W) in [0, 1] with its hidden pixels filled, and its label."""

    def __init__(self, pictures: Pictures, setting: Setting, filling: Fill, seed: int, mean: Sequence[float]):
        self.pictures, self.setting, self.seed = pictures, setting, seed
        self.filling: Fill = filling
        self.mean = torch.tensor(mean)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = self.pictures[index]
        if self.setting == CLEAN:
            return image, label
        generator = mask_generator(original_index(self.pictures, index), self.seed)
        mask = self.setting.mask((image.shape[-2], image.shape[-1]), generator)
        other = image
        if self.filling == "texture":
            step = 1 + int(torch.randint(max(1, len(self) - 1), (), generator=generator))
            other, _ = self.pictures[(index + step) % len(self)]
        return fill(image, mask, self.filling, self.mean, other, generator), label


class Subject(NamedTuple):
    """A model under test. Several of one name are its training runs, told apart by `run`."""

    name: str
    run: str
    model: nn.Module
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD


class Predictions(NamedTuple):
    """What a model said to every image of one setting."""

    rank: np.ndarray  # (n,), how many classes it found likelier than the right one; 0 is a hit
    confidence: np.ndarray  # (n,), probability of its first choice
    steps: np.ndarray  # (n, stages), PRISM's steps; no columns for another model
    label: np.ndarray  # (n,), the right class


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What any benchmark of occlusion is told.

    `folder` keeps what was found in every setting that is done; a second call with the same subjects and pictures reads
    it instead of measuring again. With `processes`, each of them calls `run`, measures its part of the batches, and is
    given all rows; only the first one reads and writes the folder, and decides for all.
    """

    fills: Sequence[Fill] = ("mean",)
    seeds: Sequence[int] = (0,)
    batch: int = 8
    workers: int = 0
    device: str = "cpu"
    folder: Path | None = None
    processes: PartialState | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes what was found."""
        return self.processes is None or self.processes.is_main_process

    def kept(self, name: str, read: Callable[[Path], Found | None]) -> tuple[Path | None, Found | None]:
        """Where this process is to keep what it finds, if it is; and what `read` makes of what is kept there."""
        path = self.folder / name if self.folder and self.is_first else None
        found = [read(path) if path else None]
        if self.processes:
            broadcast_object_list(found)
        return path, found[0]

    def collected(
        self,
        measures: Mapping[tuple[str, str, int], Callable[[], Rows]],
        about: dict[str, Any],
        progress: Callable[[str], None],
    ) -> Rows:
        """What all `measures` find, by setting, fill and mask seed, or found before; JSON must be able to hold it."""
        rows, besides = [], []
        for (setting, filling, seed), measure in measures.items():
            progress(f"{setting}, {filling} fill, mask seed {seed}")
            path, found = self.kept(f"{setting}-{filling}-{seed}.json", lambda path: _read_rows(path, about))
            if found is None:
                found = measure()
                if path:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    unfinished = path.with_suffix(".partial")
                    unfinished.write_text(json.dumps({"about": about, "rows": found}))
                    unfinished.replace(path)
            rows += found[0]
            besides += found[1]
        return rows, besides


@dataclass(frozen=True)
class OcclusionBenchmark(Benchmark):
    """`run` measures the subjects; its rows are one for each model, run, setting, fill and mask seed."""

    pictures: Pictures
    settings: Sequence[Setting] = PAPER_SETTINGS
    mean: Sequence[float] = IMAGENET_MEAN
    batch: int = field(default=64, kw_only=True)

    def run(
        self, subjects: Sequence[Subject], progress: Callable[[str], None] = lambda _: None
    ) -> tuple[list[dict[str, Any]], dict[tuple[str, str, str, str, int], Predictions]]:
        """Rows of scores, and the predictions behind them by (name, run, setting, fill, seed)."""
        if not len(self.pictures):
            raise ValueError("the data set is empty")
        labels = {(subject.name, subject.run) for subject in subjects}
        if len(labels) < len(subjects):
            raise ValueError(f"two subjects share a name and a run: {sorted(labels)}")
        about, found = self._about(subjects) if self.folder else {}, {}
        for setting, filling, seed in jobs(self.settings, self.fills, self.seeds):
            progress(f"{setting.name}, {filling} fill, mask seed {seed}")
            for (name, run), predictions in self._predictions(subjects, setting, filling, seed, about).items():
                found[name, run, setting.name, filling, seed] = predictions
        return [_row(key, predictions) for key, predictions in found.items()], found

    def _about(self, subjects: Sequence[Subject]) -> dict[str, Any]:
        """What kept predictions must be of."""
        shown = [self.pictures[index] for index in spread(self.pictures)]
        return {
            "pictures": [len(self.pictures), digest(image for image, _ in shown), [label for _, label in shown]],
            "mean": list(self.mean),
            "subjects": [[s.name, s.run, fingerprint(s.model), list(s.mean), list(s.std)] for s in subjects],
        }

    def _predictions(
        self, subjects: Sequence[Subject], setting: Setting, filling: Fill, seed: int, about: dict[str, Any]
    ) -> Mapping[tuple[str, str], Predictions]:
        path, kept = self.kept(f"{setting.name}-{filling}-{seed}.npz", lambda path: _read(path, about))
        if kept:
            return kept
        view = Occluded(self.pictures, setting, filling, seed, self.mean)
        found = predict(subjects, view, self.batch, self.workers, self.device, self.processes)
        if path:
            _write(path, about, found)
        return found


def predict(
    subjects: Sequence[Subject],
    view: Occluded,
    batch: int,
    workers: int,
    device: str,
    processes: PartialState | None = None,
) -> dict[tuple[str, str], Predictions]:
    """One pass over the data, every model on the same batches."""
    own = own_batches(len(view), batch, processes)
    parts: dict[tuple[str, str], list[Predictions]] = {(s.name, s.run): [] for s in subjects}
    for subject in subjects:
        subject.model.eval().to(device)  # not in inference mode: weights moved there could never be trained again
    with torch.inference_mode():
        for images, labels in DataLoader(view, batch_sampler=own, num_workers=workers):
            images, labels = images.to(device), labels.to(device)
            for subject in subjects:
                mean, std = (torch.tensor(v, device=device).view(-1, 1, 1) for v in (subject.mean, subject.std))
                parts[subject.name, subject.run].append(_judge(subject, (images - mean) / std, labels))
    everyones = of_all(parts, processes)
    return {key: _joined(predictions for theirs in everyones for predictions in theirs[key]) for key in parts}


def own_batches(length: int, batch: int, processes: PartialState | None = None) -> list[list[int]]:
    """Indices of the pictures that this process looks at, batch by batch.

    Processes share the batches, not the images: what a batch holds, and so the last bit of an answer, is the same for
    any number of them.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    rank, world = (processes.process_index, processes.num_processes) if processes else (0, 1)
    indices = list(range(length))
    batches = [indices[first : first + batch] for first in range(0, length, batch)]
    return batches[len(batches) * rank // world : len(batches) * (rank + 1) // world]


def refuse_mixtures(subjects: Sequence[tuple[str, str, nn.Module]]) -> None:
    """Subjects (name, run, network) of one name are averaged as its runs: none may come twice or be of another size."""
    sizes: dict[str, int] = {}
    for place, (name, run, network) in enumerate(subjects):
        if (name, run) in [(other, theirs) for other, theirs, _ in subjects[:place]]:
            raise ValueError(f"{run} is named twice")
        size = sum(parameter.numel() for parameter in network.parameters())
        if sizes.setdefault(name, size) != size:
            raise ValueError(f"{run} is another network than the other runs of {name}, by its size: judge it apart")


def of_all(found: Found, processes: PartialState | None = None) -> list[Found]:
    """What each process found, in the order of the pictures."""
    return gather_object([found]) if processes else [found]


def _read_rows(path: Path, about: dict[str, Any]) -> Rows | None:
    """Kept rows, unless they are of other models or pictures, or were cut short."""
    try:
        kept = json.loads(path.read_text())
        return kept["rows"] if kept["about"] == about else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _joined(parts: Iterable[Predictions]) -> Predictions:
    return Predictions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _judge(subject: Subject, images: Tensor, labels: Tensor) -> Predictions:
    steps = torch.zeros(len(images), 0)
    if isinstance(subject.model, Prism):
        logits, trace = subject.model.forward_traced(images, slot_maps=False)
        steps = torch.stack([stage.steps for stage in trace.stages], dim=1)
    else:
        try:
            logits = subject.model(images)
        except AssertionError as error:  # how timm refuses a size
            raise ValueError(f"{subject.name} does not take these images: {error}") from None
    if not logits.isfinite().all():
        raise ValueError(f"{subject.name} gave a logit that is not finite")
    if int(labels.max()) >= logits.shape[1]:
        raise ValueError(f"{subject.name} knows {logits.shape[1]} classes, the data has a label {int(labels.max())}")
    own = logits.gather(1, labels[:, None])
    rank = (logits > own).sum(1)
    return Predictions(*(v.cpu().numpy() for v in (rank, logits.float().softmax(1).amax(1), steps, labels)))


def _row(key: tuple[str, str, str, str, int], predictions: Predictions) -> dict[str, Any]:
    name, run, setting, filling, seed = key
    return {
        "model": name,
        "run": run,
        "setting": setting,
        "fill": filling if setting != CLEAN.name else "",
        "mask seed": seed if setting != CLEAN.name else "",
        **scores(predictions),
    }


def scores(predictions: Predictions) -> dict[str, Any]:
    """In per cent, but for the mean steps."""
    hit = predictions.rank == 0
    low, high = bootstrap_interval(100.0 * hit)
    row = {
        "images": len(hit),
        "top-1": 100 * float(hit.mean()),
        "low": low,
        "high": high,
        "top-5": 100 * float((predictions.rank < 5).mean()),
        "balanced": 100 * balanced_mean(hit, predictions.label),
        "calibration error": 100 * calibration_error(predictions.confidence, hit),
    }
    means = predictions.steps.mean(0).tolist()
    return row | {f"steps {stage + 1}": means[stage] if means else None for stage in range(4)}


def fingerprint(model: nn.Module) -> str:
    """Changes when a weight does, or how the model looks: what is kept must be of this very model."""
    prisms = [module for module in model.modules() if isinstance(module, Prism)]
    switches = [(one.fixed_steps, one.max_steps, one.memory) for one in prisms]
    design = hashlib.sha256(repr(model).encode()).hexdigest()
    return f"{type(model).__name__} {digest(model.state_dict().values())} {design} {switches}"


def digest(values: Iterable[Tensor]) -> str:
    """Of all bits."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def spread(pictures: Sized) -> tuple[int, int, int]:
    """Indices of three pictures that stand for all: another size or split changes them."""
    return 0, len(pictures) // 2, len(pictures) - 1


def _read(path: Path, about: dict[str, Any]) -> dict[tuple[str, str], Predictions] | None:
    """Kept predictions, unless they are of other models or data, or were cut short."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            if json.loads(str(kept["about"])) != about:
                return None
            return {
                (name, run): Predictions(*(kept[f"{index}.{field}"] for field in Predictions._fields))
                for index, (name, run, *_) in enumerate(about["subjects"])
            }
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _write(path: Path, about: dict[str, Any], found: Mapping[tuple[str, str], Predictions]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        f"{index}.{field}": column
        for index, predictions in enumerate(found.values())
        for field, column in predictions._asdict().items()
    }
    unfinished = path.with_suffix(".partial.npz")
    np.savez_compressed(unfinished, about=np.array(json.dumps(about)), **columns)
    unfinished.replace(path)
