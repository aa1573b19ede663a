"""How a run is trained, whatever its task."""

from dataclasses import dataclass, fields
from math import cos, pi
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

# fields that change how a run is carried out, not what comes of it: a resumed run may change them
PRACTICAL = {"out", "dry_run", "workers", "device", "save_every", "keep", "log_every"}

Schedule = Literal["cosine", "poly", "steps", "constant"]
Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Fields of every recipe."""

    out: Path = Path("runs/train")
    """folder of the run; one that was interrupted goes on there"""
    dry_run: bool = False
    """say what would be done, take one step on noise, and write nothing"""
    model: str = "prism_nano"
    """a PRISM variant or any timm model"""
    classes: int | None = None
    """number of classes; by default what the data has"""
    epochs: int = 10
    """passes over the data"""
    steps: int | None = None
    """optimiser steps; overrides epochs"""
    batch: int = 64
    """pictures an optimiser step, over all processes"""
    accumulate: int = 1
    """parts in which a process takes its share of a batch"""
    lr: float = 1e-3
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: Schedule = "cosine"
    milestones: Annotated[tuple[int, ...], arg(metavar="EPOCH...")] = ()
    """epochs at which the schedule 'steps' divides the rate by ten"""
    warmup: float = 0.0
    """epochs in which the rate rises from zero"""
    clip: float | None = None
    """most that the norm of the gradient may be; the memory's is clipped apart"""
    average: float | None = None
    """decay of the running average of the weights, which is then what is judged and kept"""
    precision: Precision = "fp32"
    save_memory: bool = False
    """recompute activations in the backward pass"""
    seed: int = 0
    workers: int = 2
    """processes that prepare pictures, for each training process"""
    device: str = "auto"
    """auto takes an accelerator if there is one; cpu does not"""
    eval_every: int = 1
    """epochs between evaluations; the last epoch has one in any case"""
    save_every: int | None = None
    """optimiser steps between checkpoints, beside the one after each epoch"""
    keep: int = 2
    """checkpoints kept, beside the weights of the best epoch"""
    log_every: int = 20
    """optimiser steps between lines of the log"""

    def __post_init__(self) -> None:
        positive = ("epochs", "batch", "accumulate", "lr", "eval_every", "keep", "log_every")
        for name in (*positive, *(n for n in ("steps", "clip", "save_every") if getattr(self, n) is not None)):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("weight_decay", "warmup", "workers", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average is a decay between 0 and 1, got {self.average}")
        if self.batch % self.accumulate:
            raise ValueError(f"a batch of {self.batch} cannot be taken in {self.accumulate} equal parts")

    def rate(self, step: int, steps: int, per_epoch: int) -> float:
        """The learning rate of optimiser step `step` (from 0) of `steps`."""
        warmup = self.warmup * per_epoch
        if step < warmup:
            return self.lr * (step + 1) / warmup
        done = (step - warmup) / max(1, steps - warmup)
        match self.schedule:
            case "cosine":
                return self.lr * 0.5 * (1 + cos(pi * done))
            case "poly":
                return self.lr * (1 - done) ** 0.9
            case "steps":
                return self.lr * 0.1 ** sum(step >= epoch * per_epoch for epoch in self.milestones)
            case "constant":
                return self.lr


def what_counts(settings: Settings) -> dict[str, Any]:
    """The fields that decide what comes of a run, as JSON would give them back."""
    found = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name not in PRACTICAL}
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
