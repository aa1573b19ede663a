"""Semantic FPN (Kirillov and others, Panoptic FPN, 2019), how it is applied to images, and the file it is read from.

B images, C classes. Images are normalised and of any size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.data import resolve_data_config
from torch import Tensor, nn
from torchvision.ops import FeaturePyramidNetwork

from prism.baselines.pyramid import STRIDES, PyramidBackbone
from prism.data.label_maps import VOID, Sides, fitted
from prism.data.preprocessing import Preprocessing
from prism.model.backbone import Trace
from prism.model.checks import LARGEST, Check, checked, either, nothing, number, several, whole
from prism.model.creation import with_weights
from prism.model.metadata import Metadata, read_metadata
from prism.tasks.learner import find_prism

CHANNELS_PER_GROUP = 4  # of a norm; 32 groups of 128 channels, as published


class TracedLogits(NamedTuple):
    logits: Tensor  # (B, C, H, W)
    trace: Trace | None  # of PRISM in training


class SemanticFPN(nn.Module):
    """A backbone's four maps, joined from coarse to fine, each brought to stride 4, summed, classified.

    `width` is the pyramid's; the branches have half of it (256 and 128 in PVTv2's configuration, whose 17.8 M the
    paper's table repeats). `mean` and `std` are those of the images that the backbone knows.
    """

    def __init__(self, model: str, classes: Sequence[str], width: int = 256, dropout: float = 0.0, **arguments: Any):
        super().__init__()
        if width < 2 * CHANNELS_PER_GROUP or width % (2 * CHANNELS_PER_GROUP):
            raise ValueError(f"width must be a multiple of {2 * CHANNELS_PER_GROUP}, got {width}")
        if not classes:
            raise ValueError("a segmenter needs at least one class")
        self.classes, self.width, self.dropout, self.arguments = list(classes), width, dropout, arguments
        self.backbone = PyramidBackbone(model, **arguments)
        self.pyramid = FeaturePyramidNetwork(self.backbone.channels, width)
        self.branches = nn.ModuleList(_branch(width, doublings) for doublings in range(len(STRIDES)))
        self.classifier = nn.Sequential(nn.Dropout2d(dropout), nn.Conv2d(width // 2, len(self.classes), 1))
        config = resolve_data_config(model=self.backbone.body)
        self.mean, self.std = config["mean"], config["std"]

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, C, H, W) of the images' own size."""
        return self.forward_traced(images).logits

    def forward_traced(self, images: Tensor) -> TracedLogits:
        size = height, width = _size(images)
        features, trace = self.backbone(resized(images, (_rounded_up(height), _rounded_up(width))))
        levels = self.pyramid({str(stride): level for stride, level in zip(STRIDES, features, strict=True)})
        at_stride_4 = [branch(level) for branch, level in zip(self.branches, levels.values(), strict=True)]
        logits = self.classifier(sum(at_stride_4[1:], at_stride_4[0]))  # (B, C, H / 4, W / 4)
        return TracedLogits(resized(logits.to(images.dtype), size), trace)

    def metadata(self, size: int = 64, fit: Sides | None = None) -> Metadata:
        """What a file must say about its weights to be read again: see `load_segmenter`."""
        return Metadata(
            task="segmentation",
            model=self.backbone.name,
            network=self.arguments,
            classes=self.classes,
            preprocessing=Preprocessing(size, None, "bilinear", self.mean, self.std).to_metadata(),
            design={"width": self.width, "dropout": self.dropout, "fit": fit},
        )

    def no_weight_decay(self) -> set[str]:
        prism = find_prism(self)
        return {f"backbone.body.{name}" for name in prism.no_weight_decay()} if prism is not None else set()

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Of the backbone, which holds most of the activations."""
        self.backbone.set_grad_checkpointing(enable)


class Inference(nn.Module):
    """A segmenter as it is used, on images of any size: scores (B, C, H, W), whose highest is the answer.

    `fit` brings images into sides (long, short) first. With a `window`, squares of that side are seen every
    `stride` pixels, and logits averaged where they overlap; an image that the window covers is seen whole. With
    `flip` or several `scales` the scores are probabilities, averaged over mirrored and scaled images.
    """

    def __init__(
        self,
        network: SemanticFPN,
        fit: Sides | None = None,
        window: int | None = None,
        stride: int | None = None,
        flip: bool = False,
        scales: Sequence[float] = (1.0,),
    ):
        super().__init__()
        stride = window if stride is None else stride
        if window is not None and not 0 < (stride or 0) <= window:
            raise ValueError(f"a window of {window} needs a stride from 1 to {window}, got {stride}")
        if window is None and stride is not None:
            raise ValueError(f"a stride of {stride} needs a window")
        if not scales or min(scales) <= 0:
            raise ValueError(f"scales must be above 0, got {tuple(scales)}")
        self.network, self.fit, self.window, self.stride = network, fit, window, stride
        self.flip, self.scales = flip, tuple(scales)

    def forward(self, images: Tensor) -> Tensor:
        views = [(scale, mirrored) for scale in self.scales for mirrored in ((False, True) if self.flip else (False,))]
        if len(views) == 1:
            return self._seen(images, *views[0])
        total = sum(self._seen(images, *view).softmax(1) for view in views)
        return torch.as_tensor(total) / len(views)

    def extra_repr(self) -> str:
        return f"fit={self.fit}, window={self.window}, stride={self.stride}, flip={self.flip}, scales={self.scales}"

    def _seen(self, images: Tensor, scale: float, mirrored: bool) -> Tensor:
        """Logits by one way of looking, at the images' own size."""
        height, width = fitted(_size(images), self.fit)
        shown = resized(images, (max(1, round(scale * height)), max(1, round(scale * width))))
        shown = shown.flip(-1) if mirrored else shown
        if self.window is not None and self.stride is not None:
            logits = slide(self.network, shown, self.window, self.stride)
        else:
            logits = self.network(shown)
        return resized(logits.flip(-1) if mirrored else logits, _size(images))


def slide(network: nn.Module, images: Tensor, window: int, stride: int) -> Tensor:
    """Logits of windows that cover the images, averaged where they overlap."""
    height, width = _size(images)
    if max(height, width) <= window:
        return network(images)
    parts = []
    for top in _starts(height, window, stride):
        for left in _starts(width, window, stride):
            place = (..., slice(top, top + window), slice(left, left + window))
            parts.append((place, network(images[place])))
    total = images.new_zeros(*parts[0][1].shape[:2], height, width)
    times = images.new_zeros(height, width)
    for place, logits in parts:
        total[place] += logits
        times[place] += 1
    return total / times


def resized(images: Tensor, size: Sides) -> Tensor:
    """Bilinear; averaged where it shrinks."""
    own = _size(images)
    if own == size:
        return images
    shrinks = size[0] < own[0] or size[1] < own[1]
    return F.interpolate(images, size, mode="bilinear", align_corners=False, antialias=shrinks)


DESIGN: dict[str, Check] = {
    "width": whole(1, LARGEST),
    "dropout": number(0, 1),
    "fit": either(nothing, several(whole(1, LARGEST), 2, 2)),
}


def load_segmenter(path: Path, **how: Any) -> Inference:
    """The network that a file of weights describes, ready for use; `how` are arguments of Inference."""
    metadata = read_metadata(path)
    if metadata.task != "segmentation":
        raise ValueError(f"{path} is not a segmenter: its task is {metadata.task}")
    said, count = metadata.design, len(metadata.classes or ())
    few = "" if 0 < count <= VOID else f"needs 1 to {VOID} classes, got {count}"  # as many as a mask's byte tells
    if reason := checked(said, DESIGN, "has no key") or few:
        raise ValueError(f"invalid metadata in {path}: design {reason}")
    width, dropout, sides = said.get("width", 256), said.get("dropout", 0.0), said.get("fit")
    network = with_weights(
        lambda: SemanticFPN(metadata.model, metadata.classes or [], width, dropout, **metadata.network), path
    )
    return Inference(network, **{"fit": tuple(sides) if sides else None, **how}).eval()


def _branch(width: int, doublings: int) -> nn.Sequential:
    """A level to stride 4: a convolution and a doubling for each factor of two, one convolution if there is none."""
    half = width // 2
    layers: list[nn.Module] = []
    for step in range(max(1, doublings)):
        layers += [
            nn.Conv2d(half if step else width, half, 3, padding=1, bias=False),
            nn.GroupNorm(half // CHANNELS_PER_GROUP, half),
            nn.ReLU(inplace=True),
        ]
        if doublings:
            layers.append(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False))
    return nn.Sequential(*layers)


def _starts(length: int, window: int, stride: int) -> list[int]:
    """Where windows begin; the last one ends with the image."""
    last = max(0, length - window)
    return sorted({min(start, last) for start in range(0, last + stride, stride)})


def _rounded_up(side: int) -> int:
    """To a multiple of the coarsest stride."""
    return -(-side // STRIDES[-1]) * STRIDES[-1]


def _size(images: Tensor) -> Sides:
    return images.shape[-2], images.shape[-1]
