"""Images and their objects as detectors are trained and evaluated on."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from prism.data.annotations import Target
from prism.data.coco import CocoImages
from prism.data.images import THINNEST, unit_pixels
from prism.data.objects import SceneImages, open_annotated
from prism.model.creation import Checkpoint
from prism.reporting.files import one_line
from prism.tasks.detection.loading import check_design

SIDE = 96  # of scenes, where no detector says it


def training_transform(flip: bool = True) -> Callable[[Image.Image, Target], tuple[Tensor, Target]]:
    """Pixels in [0, 1], mirrored every second time; crowds are left out, as torchvision's detectors cannot ignore.

    Size, normalisation and padding are the detector's own business.
    """

    def transform(image: Image.Image, target: Target) -> tuple[Tensor, Target]:
        pixels, counts = unit_pixels(image), ~target["iscrowd"]
        kept = {name: target[name][counts] for name in ("boxes", "labels", "masks") if name in target}
        if flip and torch.rand(()) < 0.5:
            pixels, width = pixels.flip(-1), pixels.shape[-1]
            boxes = kept["boxes"].clone()
            boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
            kept["boxes"] = boxes
            if "masks" in kept:
                kept["masks"] = kept["masks"].flip(-1)
        # by which Mask R-CNN draws what it is trained on, whichever process sees the image
        return pixels, kept | {"draw": int(torch.randint(2**62, ()))}

    return transform


def open_for(
    checkpoints: Sequence[Checkpoint],
    data: str,
    split: str,
    limit: int | None = None,
    visible: bool = False,
    masks: bool | None = None,
) -> CocoImages | SceneImages:
    """The images that these detectors are evaluated on. Scenes are of the size and the truth of their training.

    `visible` asks of scenes for what is seen of objects, whatever was trained. Unless told, annotations must have
    masks where a detector finds them.
    """
    found = [checkpoint.metadata for checkpoint in checkpoints]
    for checkpoint in (checkpoint for checkpoint in checkpoints if checkpoint.file):
        check_design(checkpoint.metadata, checkpoint.file)
    amodal = {metadata.design.get("amodal", True) for metadata in found} if not visible else {False}
    if len(amodal) > 1 and data == "scenes":
        raise ValueError("some detectors learned whole objects, some visible parts: evaluate them separately")
    if masks is None:
        masks = any(metadata.design.get("head") == "maskrcnn" for metadata in found)
    size = found[0].preprocessing.get("size", SIDE) if found else SIDE
    thinnest = min((metadata.design.get("longest", THINNEST) for metadata in found), default=THINNEST)
    return open_annotated(data, split, size, limit, None, amodal != {False}, masks, min(thinnest, THINNEST))


def name_broken(images: Any, quiet: bool = False) -> None:
    """What is left out must be known to whoever reads the numbers."""
    if isinstance(images, CocoImages) and images.broken and not quiet:
        print(one_line(images.summary()), file=sys.stderr)
