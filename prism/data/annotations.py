"""Objects in images, as COCO's JSON describes them.

An annotation is a dict as in COCO's JSON, its mask a compressed RLE. A target holds the n objects of an image as
torchvision's detectors want them: boxes (n, 4) as (left, top, right, bottom), labels (n,) from 1, masks (n, H, W).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from faster_coco_eval.core import mask as rle
from torch import Tensor

Annotation = dict[str, Any]
Target = dict[str, Any]


class Annotated(Protocol):
    """Images with objects by index, (PIL image, target): what detectors are trained and evaluated on."""

    classes: list[str]  # of the labels 1, 2, ...
    categories: list[int]  # their ids in the truth, which may have gaps

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Any, dict[str, Any]]: ...
    def name(self, index: int) -> str: ...
    def image(self, index: int) -> dict[str, Any]: ...  # its id, file_name, width and height
    def annotations(self, index: int) -> list[dict[str, Any]]: ...
    def fingerprint(self) -> str: ...  # changes when an image is another or an annotation does


def target_of(
    annotations: Sequence[Annotation], image_id: int, size: tuple[int, int], labels: dict[int, int], masks: bool
) -> Target:
    """`occluded` is -1 where nobody said. Boxes are cut at the image's edge."""
    height, width = size
    boxes = torch.tensor([a["bbox"] for a in annotations], dtype=torch.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    target: Target = {
        "image_id": image_id,
        "ids": torch.tensor([a["id"] for a in annotations], dtype=torch.int64),
        "boxes": boxes.clamp(min=0).minimum(torch.tensor([width, height, width, height])),
        "labels": torch.tensor([labels[a["category_id"]] for a in annotations], dtype=torch.int64),
        "area": torch.tensor([a["area"] for a in annotations], dtype=torch.float32),
        "iscrowd": torch.tensor([bool(a["iscrowd"]) for a in annotations], dtype=torch.bool),
        "occluded": torch.tensor([_flag(a.get("occluded")) for a in annotations], dtype=torch.int8),
    }
    if masks:
        target["masks"] = decode([a["segmentation"] for a in annotations], size)
    return target


def decode(masks: Sequence[dict[str, Any]], size: tuple[int, int]) -> Tensor:
    """Compressed RLEs as (n, H, W) of uint8."""
    if not masks:
        return torch.zeros(0, *size, dtype=torch.uint8)
    return torch.from_numpy(np.ascontiguousarray(rle.decode([*masks]).transpose(2, 0, 1)))


def encode(mask: np.ndarray) -> dict[str, Any]:
    """A mask (H, W) as the compressed RLE of COCO's files."""
    found = rle.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": [*mask.shape], "counts": found["counts"].decode()}


def _flag(value: Any) -> int:
    return -1 if value is None else int(bool(value))
