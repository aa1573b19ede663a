"""Classifiers by their checkpoints, and the images that they are evaluated on."""

from collections.abc import Sequence

import torch
from timm.data import resolve_data_config
from torch import nn

from prism.data import sources
from prism.data.pictures import evaluation_view, unit_pixels
from prism.model.creation import Checkpoint, open_model
from prism.occlusion.benchmark import Pictures, Subject
from prism.tasks.classification import OwnPictures


def open_pictures(
    checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], size: int | None, limit: int | None
) -> tuple[dict[str, Pictures], list[str]]:
    """Images by split, and their classes: those that a file of weights names, or the train split, or the first."""
    size = size or next((c.size for c in checkpoints if c.size), 224)
    scenes = data == "scenes"
    classes = None if scenes else next((c.classes for c in checkpoints if c.classes), None)
    view = unit_pixels if scenes else evaluation_view(size)
    length = (1000 if limit is None else limit) if scenes else None
    found: dict[str, Pictures] = {}
    for split in [split or "clean" for split in splits] if scenes else splits:
        pictures = sources.open_pictures(data, split, size, length, classes=classes)
        classes = pictures.classes
        found[split] = OwnPictures(pictures if limit is None or scenes else sources.limited(pictures, limit), view)
    return found, classes or []


def open_subjects(checkpoints: Sequence[Checkpoint], classes: list[str], pretrained: bool = False) -> list[Subject]:
    """The classifiers of these checkpoints, which must know these classes."""
    torch.manual_seed(0)  # untrained weights are the same in every process, and in a run that goes on
    subjects = []
    for checkpoint in checkpoints:
        network = open_model(checkpoint, len(classes), pretrained)
        known = checkpoint.classes or [""] * int(network.num_classes)  # pyright: ignore[reportArgumentType]
        if len(known) != len(classes) or (checkpoint.classes and known != classes):
            source = checkpoint.file or checkpoint.name
            raise ValueError(f"{source} knows {len(known)} classes, which are not the {len(classes)} of the data")
        subjects.append(_subject(checkpoint, network, pretrained))
    return subjects


def _subject(checkpoint: Checkpoint, network: nn.Module, pretrained: bool) -> Subject:
    cfg = resolve_data_config(model=network)
    file, kind = checkpoint.file, "pretrained" if pretrained else "untrained"
    return Subject(checkpoint.name, str(file.with_suffix("")) if file else kind, network, cfg["mean"], cfg["std"])
