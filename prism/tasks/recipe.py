"""Fields of every recipe: how a run is trained, whatever its task. Known without torch, so that they list at once."""

from dataclasses import dataclass, fields
from math import cos, pi
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from tyro.conf import Suppress, arg

from prism.model.checks import Count, Positive, Range, Workers, check_options

# PRISM for photographs on two cores; prism_nano then costs less than PVTv2-B0 at 112 px (results/imagenette-112)
LEAN = ("code_decay=0.9", "slots=(12,12,4,4)", "max_steps=3", "halting_start=0.25")
SCENES = ("code_decay=0.9", "max_steps=3")  # and for generated scenes

# fields that change how a run is carried out, not what comes of it: a resumed run may change them
PRACTICAL = {
    "prism_network",
    "out",
    "dry_run",
    "devices",
    "workers",
    "device",
    "shard",
    "save_every",
    "keep",
    "log_every",
}

Schedule = Literal["cosine", "poly", "steps", "constant"]
Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Fields of every recipe."""

    task: ClassVar[str]

    out: Path = Path("runs/train")
    """folder of the run; an interrupted one resumes there"""
    dry_run: bool = False
    """print what would be done and what it would cost, take one step on noise, and write nothing"""
    devices: Count = 1
    """GPUs that a dry run assumes; in training the launcher decides how many processes there are"""
    model: str = "prism_nano"
    """a PRISM variant or any timm model"""
    network: Annotated[tuple[str, ...] | None, arg(metavar="KEY=VALUE...")] = None
    """arguments of the model, such as max_steps=6 memory=off preset=paper; by default the recipe's for PRISM"""
    prism_network: Annotated[tuple[str, ...], Suppress] = ()
    weights: Path | None = None
    """weights to start from: of a classifier, whose head may have another number of classes"""
    data: str = "scenes"
    """scenes (generated), or a folder"""
    limit: Count | None = None
    """evaluate at most this many images of a split, spread over it"""
    length: Count | None = None
    """images per epoch: of generated scenes, or of shards without a count"""
    classes: Annotated[int, Range(1, 100_000)] | None = None
    """number of classes; by default that of the data"""
    epochs: Count = 10
    """passes over the data"""
    steps: Count | None = None
    """optimiser steps; overrides epochs"""
    batch: Count = 64
    """images per optimiser step, over all processes"""
    accumulate: Count = 1
    """gradient accumulation: number of parts that a process splits its share of a batch into"""
    lr: Positive = 1e-3
    weight_decay: float = 0.05
    betas: Annotated[tuple[float, float], Range(0, 1 - 1e-9)] = (0.9, 0.999)
    schedule: Schedule = "cosine"
    milestones: Annotated[tuple[int, ...], arg(metavar="EPOCH...")] = ()
    """epochs at which the schedule 'steps' divides the rate by ten"""
    warmup: float = 0.0
    """epochs in which the rate rises from zero"""
    clip: Positive | None = None
    """largest norm of the gradient; the memory's is clipped separately"""
    average: Annotated[float, Range(1e-9, 1 - 1e-9)] | None = None
    """decay of the running average of the weights; the average is then evaluated and kept"""
    precision: Precision = "fp32"
    shard: bool = False
    """shard weights, gradients and optimiser state across the processes (FSDP 2)"""
    save_memory: bool = False
    """recompute activations in the backward pass"""
    seed: int = 0
    workers: Workers = 2
    """processes that prepare images, per training process"""
    device: str = "auto"
    """auto takes an accelerator if there is one; cpu does not"""
    eval_every: Count = 1
    """epochs between evaluations; the last epoch has one in any case"""
    save_every: Count | None = None
    """optimiser steps between checkpoints, in addition to the one after each epoch"""
    keep: Count = 2
    """checkpoints kept, in addition to the weights of the best epoch"""
    log_every: Count = 20
    """optimiser steps between lines of the log"""
    flip: bool = True
    """mirror each training image with probability 0.5"""
    ponder: float = 0.005
    """weight (lambda) of the ponder loss"""
    vq: float = 0.01
    """weight (lambda) of the memory's loss"""

    def __post_init__(self) -> None:
        check_options(self)
        if self.batch % self.accumulate:
            raise ValueError(f"a batch of {self.batch} cannot be taken in {self.accumulate} equal parts")

    def network_words(self) -> tuple[str, ...]:
        """The arguments of the model: what was asked for, or what the recipe has for PRISM."""
        if self.network is not None:
            return self.network
        return self.prism_network if self.model.startswith("prism_") else ()

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


def resume_fields(recipe: Recipe) -> dict[str, Any]:
    """The fields that decide the outcome of a run, as JSON would give them back."""
    found = {field.name: getattr(recipe, field.name) for field in fields(recipe) if field.name not in PRACTICAL}
    return {name: _plain(value) for name, value in found.items()} | {"network": [*recipe.network_words()]}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
