"""The networks of the playground: a PRISM, and a baseline trained on the same classes at the same size."""

from pathlib import Path
from typing import NamedTuple

from timm.data import resolve_data_config

from prism.model.backbone import Prism
from prism.model.creation import Checkpoint, find_checkpoint, open_model
from prism.model.metadata import read_metadata
from prism.model.weights import shipped
from prism.occlusion.benchmark import Subject


class Players(NamedTuple):
    ours: Subject
    network: Prism  # `ours.model`, by its type
    baseline: Subject | None
    classes: list[str]  # as folders of the data are named
    titles: list[str]  # the same in words
    size: int  # of the images, in pixels


def open_players(checkpoint: Path | None, baseline: Path | None) -> Players:
    """From files of weights with metadata; without a checkpoint, from those that the package ships."""
    if checkpoint is None:
        checkpoint, baseline = shipped("prism_nano"), baseline or shipped("pvt_v2_b0")
        if checkpoint is None:
            raise ValueError("this installation ships no weights: pass --checkpoint FILE.safetensors")
    found = _classifier(checkpoint)
    ours = _subject(found)
    if not isinstance(ours.model, Prism):
        raise ValueError(f"{checkpoint} holds weights of {found.name}, which is not a PRISM: pass it as --baseline")
    size = found.size or 224
    classes = found.classes or [f"class {index}" for index in range(ours.model.num_classes)]
    theirs = None
    if baseline is not None:
        other = _classifier(baseline)
        theirs = _subject(other)
        if (other.classes or classes) != classes or int(theirs.model.num_classes) != len(classes):  # pyright: ignore
            raise ValueError(f"{baseline} was not trained on the {len(classes)} classes of {checkpoint}")
        if (other.size or size) != size:
            raise ValueError(f"{baseline} was trained at {other.size} pixels, {checkpoint} at {size}")
    return Players(ours, ours.model, theirs, classes, found.titles or classes, size)


def _classifier(file: Path) -> Checkpoint:
    if (task := read_metadata(file).task) != "classification":
        raise ValueError(f"{file} is for {task}; the playground needs a classifier")
    return find_checkpoint("", file)


def _subject(found: Checkpoint) -> Subject:
    model = open_model(found)
    config = resolve_data_config(model=model)
    return Subject(found.name, str(found.file), model, config["mean"], config["std"])
