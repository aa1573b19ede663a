"""The networks of the playground: a PRISM, and a baseline trained on the same classes at the same size."""

from pathlib import Path
from typing import NamedTuple

from timm.data import resolve_data_config

from prism.data.scenes import SHAPES
from prism.metrics.complexity import StepCost, macs_by_module, step_cost
from prism.model.backbone import Prism
from prism.model.creation import Checkpoint, find_checkpoint, open_model
from prism.model.metadata import read_metadata
from prism.occlusion.benchmark import Subject


class Players(NamedTuple):
    ours: Subject
    network: Prism  # `ours.model`, by its type
    baseline: Subject | None
    classes: list[str]  # as folders of the data are named
    titles: list[str]  # the same in words
    size: int  # of the images, in pixels
    cost: StepCost
    baseline_macs: float

    @property
    def know_scenes(self) -> bool:
        return self.classes == list(SHAPES)


def open_players(checkpoint: Path, baseline: Path | None) -> Players:
    """From files of weights with metadata."""
    found = _classifier(checkpoint)
    ours = _subject(found)
    if not isinstance(ours.model, Prism):
        raise ValueError(
            f"{checkpoint} holds weights of {found.name}, which is not a PRISM model: pass it as --baseline"
        )
    size = found.size or 224
    classes = found.classes or [f"class {index}" for index in range(ours.model.num_classes)]
    theirs, macs = None, 0
    if baseline is not None:
        other = _classifier(baseline)
        theirs = _subject(other)
        if (other.classes or classes) != classes or int(theirs.model.num_classes) != len(classes):  # pyright: ignore
            raise ValueError(f"{baseline} was not trained on the {len(classes)} classes of {checkpoint}")
        if (other.size or size) != size:
            raise ValueError(f"{baseline} was trained at {other.size} pixels, {checkpoint} at {size}")
        macs = macs_by_module(theirs.model, (size, size))[""]
    cost = step_cost(ours.model, (size, size))
    return Players(ours, ours.model, theirs, classes, found.metadata.names or classes, size, cost, macs)


def _classifier(file: Path) -> Checkpoint:
    if (task := read_metadata(file).task) != "classification":
        raise ValueError(f"{file} is for {task}; the playground needs a classifier")
    return find_checkpoint("", file)


def _subject(found: Checkpoint) -> Subject:
    model = open_model(found)
    config = resolve_data_config(model=model)
    return Subject(found.name, str(found.file), model, config["mean"], config["std"])
