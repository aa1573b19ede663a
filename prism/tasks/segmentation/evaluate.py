"""Scores of segmenters from counts over whole data sets, and what they cost.

B images, C classes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from prism.data.label_maps import LabelledImages, Segmented, Sides
from prism.metrics import complexity
from prism.metrics.iou import Counts, added, count, scores
from prism.model.creation import Checkpoint
from prism.occlusion.hiding import Occluded
from prism.occlusion.runner import Subject, check_finite, ready
from prism.occlusion.settings import CLEAN
from prism.tasks.segmentation.network import Inference, SemanticFPN, load_segmenter
from prism.tasks.task import check_classes, with_files

COST_SIZE = (512, 512)  # where the paper counts


class Shown(NamedTuple):
    """An image as segmenters see it."""

    image: Tensor  # (3, H, W) in [0, 1]
    labels: Tensor  # (H, W): what is there, hidden or not
    hidden: Tensor  # (H, W) of bool


class OccludedImages(Occluded):
    """Labelled images under one setting, with what is hidden."""

    def __getitem__(self, index: int) -> Shown:
        image, labels, mask, _ = self.hidden(index)
        return Shown(image, labels, mask)


def count_pixels(
    subjects: Sequence[Subject],
    shown: OccludedImages,
    classes: int,
    batches: Sequence[Sequence[int]],
    workers: int,
    device: str,
) -> dict[tuple[str, str], Counts]:
    """One pass over batches of the images, every model on the same ones. Models give scores (B, C, H, W)."""
    nothing = Counts(torch.zeros(2, classes, classes, dtype=torch.long), torch.zeros(2, classes, dtype=torch.long))
    found = {(subject.name, subject.run): nothing for subject in subjects}
    ready((subject.model for subject in subjects), device)
    with torch.inference_mode():
        loader = DataLoader(shown, batch_sampler=batches, num_workers=workers, collate_fn=_by_size)  # pyright: ignore
        for places, groups in zip(batches, loader, strict=True):
            for members, (images, labels, hidden) in groups:
                names = [shown.name(places[member]) for member in members]
                for subject in subjects:
                    prediction = label_pixels(subject, images.to(device), classes, names).cpu()
                    key = subject.name, subject.run
                    found[key] = added(found[key], count(labels, prediction, classes, hidden))
    return found


def label_pixels(subject: Subject, images: Tensor, classes: int, names: Sequence[str]) -> Tensor:
    """The class of every pixel, (B, H, W)."""
    mean, std = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (subject.mean, subject.std))
    # one parameter tells the width of all: a float64 run is evaluated in float64
    dtype = next((p.dtype for p in subject.model.parameters()), images.dtype)
    found = subject.model(((images - mean) / std).to(dtype))
    if found.shape[1] != classes:
        raise ValueError(f"{subject.name} knows {found.shape[1]} classes, the data has {classes}")
    check_finite(subject.name, found, names.__getitem__)
    return found.argmax(1)


def in_training(
    network: SemanticFPN, samples: Segmented, fit: Sides | None, accelerator: Accelerator, batch: int, workers: int
) -> dict[str, float]:
    """mIoU, pixel accuracy and boundary IoU of whole images, over all processes."""
    subject = Subject(network.backbone.name, "", Inference(network, fit), network.mean, network.std)
    shown = OccludedImages(LabelledImages(samples), CLEAN)
    own = range(accelerator.process_index, len(shown), accelerator.num_processes)
    batches = [own[first : first + batch] for first in range(0, len(own), batch)]
    with accelerator.autocast():
        classes, device = len(samples.classes), str(accelerator.device)
        [found] = count_pixels([subject], shown, classes, batches, workers, device).values()
    everywhere = Counts(*(accelerator.reduce(part.to(accelerator.device)) for part in found))  # pyright: ignore
    return {name: value for name, value in scores(everywhere).items() if value is not None}


def summed(parts: Sequence[Mapping[tuple[str, str], Counts]]) -> dict[tuple[str, str], Counts]:
    """What several processes counted."""
    return {key: reduce(added, (part[key] for part in parts)) for key in parts[0]}


def subjects_of(checkpoints: Sequence[Checkpoint], classes: Sequence[str], **how: Any) -> list[Subject]:
    """The segmenters of these files, which must know these classes; `how` are arguments of Inference."""
    for checkpoint in checkpoints:
        if checkpoint.file:
            check_classes(checkpoint.file, checkpoint.classes or [], classes)
    found = []
    for file in with_files(checkpoints):
        inference = load_segmenter(file, **how)
        network = inference.network
        found.append(Subject(network.backbone.name, str(file.with_suffix("")), inference, network.mean, network.std))
    return found


def costs(model: nn.Module, size: tuple[int, int] = COST_SIZE) -> complexity.Costs:
    """Of the network itself: sizes, windows and mirrored images that it is used with are not its own."""
    return complexity.costs(model.network if isinstance(model, Inference) else model, size)


def _by_size(shown: Sequence[Shown]) -> list[tuple[list[int], Shown]]:
    """Images of one size together, (B, ...) each, so that none is padded or scaled for another's sake.

    With each group, which of the batch they are.
    """
    groups: dict[torch.Size, list[int]] = defaultdict(list)
    for member, one in enumerate(shown):
        groups[one.labels.shape].append(member)
    return [
        (members, Shown(*(torch.stack(parts) for parts in zip(*(shown[member] for member in members), strict=True))))
        for members in groups.values()
    ]
