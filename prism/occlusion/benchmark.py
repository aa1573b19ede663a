"""How robust is a classifier to occlusion? The protocol, for any models and data: all see the same pixels.

n images.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from prism.data.preprocessing import IMAGENET_MEAN, IMAGENET_STD, normalise
from prism.metrics.significance import balanced_mean, bootstrap_interval, calibration_error
from prism.model.backbone import logits_and_trace
from prism.occlusion.hiding import Images, Occluded
from prism.occlusion.runner import Benchmark, Progress, Subject, check_finite, fingerprint, ready
from prism.occlusion.settings import CLEAN, CURVES, PAPER_SETTINGS, Job, Setting, jobs
from prism.reporting.tables import Row

__all__ = [
    "CLEAN",
    "CURVES",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "PAPER_SETTINGS",
    "Occluded",
    "Setting",
    "Subject",
    "jobs",
]
Key = tuple[str, str, str, str, int]  # name, run, setting, fill, mask seed


class Predictions(NamedTuple):
    """What a model answered to every image of one setting."""

    rank: np.ndarray  # (n,), how many classes it found likelier than the right one; 0 is a hit
    confidence: np.ndarray  # (n,), probability of its first choice
    steps: np.ndarray  # (n, stages), PRISM's steps; no columns for another model
    label: np.ndarray  # (n,), the right class

    def kept(self) -> list[Any]:
        return [column.tolist() for column in self]

    @classmethod
    def read(cls, columns: Sequence[Any]) -> "Predictions":
        rank, confidence, steps, label = map(np.array, columns)
        return cls(rank, confidence.astype(np.float32), steps.reshape(len(rank), -1), label)


@dataclass(frozen=True)
class OcclusionBenchmark(Benchmark):
    """`run` measures the subjects; its rows are one for each model, run, setting, fill and mask seed."""

    images: Images
    settings: Sequence[Setting] = PAPER_SETTINGS
    mean: Sequence[float] = IMAGENET_MEAN
    batch: int = field(default=64, kw_only=True)

    def run(
        self, subjects: Sequence[Subject], progress: Progress = lambda _: None
    ) -> tuple[list[Row], dict[Key, Predictions]]:
        """Rows of scores, and the predictions behind them by (name, run, setting, fill, seed)."""
        labels = {(subject.name, subject.run) for subject in subjects}
        if len(labels) < len(subjects):
            raise ValueError(f"two subjects share a name and a run: {sorted(labels)}")
        rows, predictions = [], {}
        for job, found in self.found(subjects, progress):
            for name, run, columns in found:
                own = predictions[name, run, job.setting.name, job.filling, job.seed] = Predictions.read(columns)
                rows.append({"model": name, "run": run, **job.columns, **scores(own)})
        return rows, predictions

    def describe(self, subjects: Sequence[Subject]) -> list[Any]:
        return [[s.name, s.run, fingerprint(s.model), list(s.mean), list(s.std)] for s in subjects] + [[*self.mean]]

    def measure(self, subjects: Sequence[Subject], job: Job) -> list[Any]:
        shown = Occluded(self.images, *job, self.mean)
        return [[name, run, found.kept()] for (name, run), found in self.predict(subjects, shown).items()]

    def predict(self, subjects: Sequence[Subject], shown: Occluded) -> Mapping[tuple[str, str], Predictions]:
        """One pass over the data, every model on the same batches."""
        parts: dict[tuple[str, str], list[Predictions]] = {(s.name, s.run): [] for s in subjects}
        ready((subject.model for subject in subjects), self.device)
        own = self.own_batches(len(shown))
        with torch.inference_mode():
            loader = DataLoader(shown, batch_sampler=own, num_workers=self.workers)
            for places, (images, labels) in zip(own, loader, strict=True):
                images, labels = images.to(self.device), labels.to(self.device)
                names = [shown.name(place) for place in places]
                for subject in subjects:
                    seen = normalise(images, subject.mean, subject.std)
                    parts[subject.name, subject.run].append(_answers(subject, seen, labels, names))
        everyones = self.everyones(parts)
        return {key: _joined(found for theirs in everyones for found in theirs[key]) for key in parts}


def scores(predictions: Predictions) -> Row:
    """In per cent, but for the mean steps of PRISM's stages."""
    hit = predictions.rank == 0
    low, high = bootstrap_interval(100.0 * hit)
    return {
        "images": len(hit),
        "top-1": 100 * float(hit.mean()),
        "low": low,
        "high": high,
        "top-5": 100 * float((predictions.rank < 5).mean()),
        "balanced": 100 * balanced_mean(hit, predictions.label),
        "calibration error": 100 * calibration_error(predictions.confidence, hit),
    } | {f"steps {stage}": mean for stage, mean in enumerate(predictions.steps.mean(0).tolist(), start=1)}


def step_columns(row: Mapping[str, Any]) -> list[str]:
    """The columns of a row that hold mean steps, one per stage of a PRISM; none of another model."""
    return [name for name in row if name.startswith("steps ") and row[name] is not None]


def _joined(parts: Iterable[Predictions]) -> Predictions:
    return Predictions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _answers(subject: Subject, images: Tensor, labels: Tensor, names: Sequence[str]) -> Predictions:
    try:
        logits, trace = logits_and_trace(subject.model, images)
    except AssertionError as error:  # how timm refuses a size
        raise ValueError(f"{subject.name} does not take these images: {error}") from None
    steps = torch.stack([stage.steps for stage in trace.stages], dim=1) if trace else torch.zeros(len(images), 0)
    check_finite(subject.name, logits, names.__getitem__)
    if int(labels.max()) >= logits.shape[1]:
        raise ValueError(f"{subject.name} knows {logits.shape[1]} classes, the data has a label {int(labels.max())}")
    own = logits.gather(1, labels[:, None])
    rank = (logits > own).sum(1)
    return Predictions(*(v.cpu().numpy() for v in (rank, logits.float().softmax(1).amax(1), steps, labels)))
