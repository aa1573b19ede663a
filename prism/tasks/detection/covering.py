"""Blocks over objects (M30, M50, ...): two objects per image lose a share of their pixels.

Every detector sees the same pixels: what is hidden depends on the image's id and the mask seed, and on nothing else.
Which objects are hidden does not depend on how much of them is. What is asked for is the object as it was annotated
(amodal), or the part of it that is left to see.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from prism.data.annotations import Annotated, encode
from prism.data.images import unit_pixels
from prism.data.preprocessing import IMAGENET_MEAN
from prism.metrics.average_precision import Truth, categories_of
from prism.occlusion.fills import Fill
from prism.occlusion.hiding import hide
from prism.occlusion.masks import instance_mask, mask_generator
from prism.reporting.figures import pixels as as_pixels
from prism.reporting.files import write_text
from prism.reporting.tables import Row

HIDDEN = 2  # objects of an image
SMALLEST = 10  # pixels: of fewer, 10 % would be none


class Cover(NamedTuple):
    """What blocks hide of an image and of the objects they were laid over."""

    hidden: Tensor  # (H, W) of bool
    chosen: list[int]  # the objects, at most two
    own: list[int]  # pixels of each that its own block hides
    by_other: list[int]  # further pixels of each that the other block hides
    lost: list[int]  # pixels of every object, chosen or not, that any block hides


def cover(masks: Tensor, eligible: Tensor, share: float, generator: torch.Generator) -> Cover:
    """Blocks over two random objects of those eligible, each hiding exactly round(share * area) of its own object.

    `masks` is (n, H, W) of bool, `eligible` (n,). Objects of fewer than ten pixels are too small to be hidden.
    """
    large = torch.tensor([int(mask.sum()) >= SMALLEST for mask in masks], dtype=torch.bool)
    candidates = (eligible & large).nonzero().squeeze(1)
    # drawn before the blocks, so that another share hides the same objects
    order = torch.randperm(len(candidates), generator=generator)[:HIDDEN]
    chosen = candidates[order].tolist()
    blocks = [instance_mask(masks[place], share, generator) for place in chosen]
    hidden = torch.zeros(masks.shape[1:], dtype=torch.bool)
    for block in blocks:
        hidden |= block
    own = [int((masks[place] & block).sum()) for place, block in zip(chosen, blocks, strict=True)]
    lost = [int((mask & hidden).sum()) for mask in masks]
    return Cover(hidden, chosen, own, [lost[place] - alone for place, alone in zip(chosen, own, strict=True)], lost)


class Covered(NamedTuple):
    """An image as detectors see it."""

    image: Tensor  # (3, H, W) in [0, 1], in steps of 1/255: a PNG of it holds the same
    entry: dict[str, Any]  # COCO's
    annotations: list[dict[str, Any]]  # what is asked for
    masked: list[int]  # ids of the annotations that blocks lie over
    areas: list[int]  # pixels of each of these before
    brushed: dict[int, int]  # of the other annotations that a block hides a part of: pixels hidden
    cover: Cover


@dataclass
class CoveredImages(Dataset[Covered]):
    """Annotated images with a share of two objects hidden; with share 0 nothing is, but the two are chosen.

    With `visible` the truth is what is left to see; an object of which nothing is left is not asked for.
    """

    images: Annotated
    share: float
    filling: Fill = "mean"
    seed: int = 0
    visible: bool = False
    mean: Sequence[float] = IMAGENET_MEAN

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must lie between 0 and 1, got {self.share}")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Covered:
        entry, annotations = self.images.image(index), self.images.annotations(index)
        image, target = self.images[index]
        masks = target["masks"].bool()
        generator = mask_generator(entry["id"], self.seed)
        found = cover(masks, ~target["iscrowd"], self.share, generator)
        pixels = self._filled(index, unit_pixels(image), found.hidden, generator)
        masked = [annotations[place]["id"] for place in found.chosen]
        areas = [int(masks[place].sum()) for place in found.chosen]
        pairs = zip(annotations, found.lost, strict=True)
        brushed = {a["id"]: lost for a, lost in pairs if lost and a["id"] not in masked}
        if self.visible:
            annotations = list(_left(annotations, masks & ~found.hidden))
        return Covered(pixels, entry, annotations, masked, areas, brushed, found)

    def _filled(self, index: int, pixels: Tensor, hidden: Tensor, generator: torch.Generator) -> Tensor:
        if not self.share:
            return pixels
        others = (len(self), index, lambda place: unit_pixels(self.images[place][0]))
        return (hide(pixels, hidden, generator, self.filling, self.mean, others) * 255).round() / 255


def write_occluded(data: CoveredImages, out: Path) -> Row:
    """The covered images as a COCO folder for other frameworks: images/*.png and instances.json; what was hidden.

    A masked annotation has `masked` 1. Every one has the pixels of it that its own block hides, and those that a block
    laid over another object does in addition.
    """
    (out / "images").mkdir(parents=True, exist_ok=True)
    truth: Truth = {
        "info": {
            "description": f"{HIDDEN} objects per image, {data.share:.0%} of each hidden; "
            f"fill {data.filling}, mask seed {data.seed}, truth {'visible part' if data.visible else 'as annotated'}"
        },
        "images": [],
        "annotations": [],
        "categories": categories_of(data.images),
    }
    covers = []
    for index in range(len(data)):
        one = data[index]
        name = f"{one.entry['id']:012d}.png"
        Image.fromarray(as_pixels(one.image)).save(out / "images" / name)
        truth["images"].append({**one.entry, "file_name": name})
        hidden = dict(zip(one.masked, zip(one.cover.own, one.cover.by_other, strict=True), strict=True))
        for annotation in one.annotations:
            own, by_other = hidden.get(annotation["id"], (0, one.brushed.get(annotation["id"], 0)))
            flags = {"masked": int(annotation["id"] in hidden), "hidden": own, "hidden_by_other": by_other}
            truth["annotations"].append(annotation | flags)
        covers.append(without_pixels(one))
    write_text(out / "instances.json", json.dumps(truth))
    return summary(covers)


def without_pixels(one: Covered) -> Covered:
    """What is counted at the end; the pixels of a whole data set would not fit into memory."""
    nothing = torch.empty(0)
    return one._replace(image=nothing, cover=one.cover._replace(hidden=nothing))


def summary(covers: Sequence[Covered]) -> Row:
    """How many images had two objects to hide, one or none; and which share of the objects' pixels went."""
    counts = [len(one.masked) for one in covers]
    whole = sum(area for one in covers for area in one.areas)
    own, by_other = (sum(n for one in covers for n in getattr(one.cover, name)) for name in ("own", "by_other"))
    return {
        "images": len(covers),
        "two objects": sum(count == HIDDEN for count in counts),
        "one object": counts.count(1),
        "no object": counts.count(0),
        "objects": sum(counts),
        "hidden by own block": own / whole if whole else None,
        "by the other": by_other / whole if whole else None,
    }


def _left(annotations: Sequence[dict[str, Any]], masks: Tensor) -> Iterator[dict[str, Any]]:
    """The annotations of what is left to see of their objects."""
    for annotation, mask in zip(annotations, masks, strict=True):
        rows, columns = mask.any(1).nonzero().squeeze(1), mask.any(0).nonzero().squeeze(1)
        if not len(rows):
            continue
        left, top = int(columns[0]), int(rows[0])
        box = [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top]
        yield {**annotation, "bbox": box, "area": int(mask.sum()), "segmentation": encode(mask.numpy())}
