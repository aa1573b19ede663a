"""Detection and instance segmentation: torchvision's RetinaNet and Mask R-CNN on any backbone.

Their anchors, heads, losses and suppression are torchvision's own; here is only what joins them to a backbone.
Parameters with 80 classes and width 256: see `tests/tasks/detection/test_network.py`, which holds them to the paper's.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from timm.data import resolve_data_config
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN, RetinaNet
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.retinanet import RetinaNetHead
from torchvision.models.detection.roi_heads import paste_masks_in_image
from torchvision.models.detection.transform import GeneralizedRCNNTransform, resize_boxes
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock, LastLevelMaxPool, LastLevelP6P7

from prism.baselines.pyramid import PyramidBackbone
from prism.model.attention import at_least_float32
from prism.model.backbone import Trace
from prism.tasks.detection.recipes import NORM_GROUPS, Head
from prism.tasks.learner import find_prism

TITLES: dict[Head, str] = {"retinanet": "RetinaNet", "maskrcnn": "Mask R-CNN"}
HEADS = ("head", "rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor")  # of either detector
MOST = 100  # detections of an image: COCO counts no more


class Design(NamedTuple):
    """What a detector is built of; the defaults are the published ones."""

    model: str = "prism_tiny"
    head: Head = "retinanet"
    width: int = 256  # of the feature pyramid and the heads
    anchor: int = 32  # side of the smallest anchor in pixels
    sizes: tuple[int, ...] = (800,)  # short sides: in training one is drawn for each image, evaluated is at the last
    longest: int = 1333  # but no side is longer
    proposals: int = 1000  # regions that Mask R-CNN sees; in training it draws from twice as many
    regions: int = 512  # of these that one image trains
    norm: bool = False  # group norms in the pyramid and the heads, for which a short training is grateful


class PyramidMaps(nn.Module):
    """A backbone and its feature pyramid, as torchvision's detectors ask for them: named maps of one width.

    A detector hands on nothing but maps. So PRISM's trace of a training batch waits here until it is fetched.
    """

    def __init__(self, backbone: PyramidBackbone, first: int, width: int, extra: ExtraFPNBlock, norm: bool = False):
        super().__init__()
        self.backbone, self.first, self.out_channels = backbone, first, width
        for level in range(first):  # what is not used is neither brought to its stride nor trained to be
            backbone.resize[level] = nn.Identity()
        self.pyramid = FeaturePyramidNetwork(backbone.channels[first:], width, extra, _norm(norm))
        self._trace: Trace | None = None

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features, self._trace = self.backbone(images)
        return self.pyramid({str(level): maps for level, maps in enumerate(features[self.first :])})

    def take_trace(self) -> Trace | None:
        """Of the last training batch, once."""
        trace, self._trace = self._trace, None
        return trace


class DetectionNetwork(nn.Module):
    """Images (3, H, W) in [0, 1], each of its own size -> one dict per image: boxes, labels from 1, scores, masks.

    The dicts are torchvision's, but masks (n, 1, H, W) are bool. In training, with targets, it gives the losses.
    When evaluated, only images of one size share a batch: none is padded to another's size, which would enter slots,
    positions and the halting of PRISM.
    """

    def __init__(self, detector: RetinaNet | MaskRCNN):
        super().__init__()
        self.detector = detector

    @property
    def maps(self) -> PyramidMaps:
        return self.detector.backbone  # pyright: ignore[reportReturnType]

    @property
    def finds_masks(self) -> bool:
        return isinstance(self.detector, MaskRCNN)

    def forward(self, images: Sequence[Tensor], targets: Sequence[dict[str, Tensor]] | None = None) -> Any:
        if self.training:
            for place, sampler in enumerate(self.samplers):
                sampler.seeds = [place + int(target.get("draw", 0)) for target in targets or ()]
            return self.detector(list(images), targets)
        found: list[Any] = [None] * len(images)
        for places in _of_one_size(images):
            for place, result in zip(places, self.detector([images[p] for p in places]), strict=True):
                named = result["labels"] > 0  # RetinaNet has a score for class 0 too, which is none
                found[place] = {name: values[named] for name, values in result.items()}
        return found

    @property
    def samplers(self) -> "list[_Sampler]":
        """Of Mask R-CNN: what its proposals are trained on, and its regions."""
        parts: Any = (self.detector.rpn, self.detector.roi_heads) if isinstance(self.detector, MaskRCNN) else ()
        return [part.fg_bg_sampler for part in parts]

    def counted(self) -> dict[str, Tensor]:
        """Over how many each loss of the last training batch is a mean, where images differ in it."""
        if not self.finds_masks:
            return {}
        (anchors, _), (regions, objects) = (sampler.counts for sampler in self.samplers)
        of_regions = {"loss_classifier": regions, "loss_box_reg": regions, "loss_mask": objects}
        return {"loss_objectness": anchors, "loss_rpn_box_reg": anchors} | of_regions

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Of the backbone."""
        self.maps.backbone.set_grad_checkpointing(enable)

    def no_weight_decay(self) -> set[str]:
        prism = find_prism(self)
        return {f"detector.backbone.backbone.body.{name}" for name in prism.no_weight_decay()} if prism else set()


class _Sampler(BalancedPositiveNegativeSampler):
    """torchvision's, but what it draws of an image follows from a seed of that image's own: see `counted` too."""

    seeds: Sequence[int] = ()

    def __call__(self, matched_idxs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        drawn: list[list[Tensor]] = []
        for seed, matched in zip(self.seeds, matched_idxs, strict=True):
            generator = torch.Generator().manual_seed(seed)
            order = torch.randperm(len(matched), generator=generator).to(matched.device)
            positive = order[matched[order] >= 1][: int(self.batch_size_per_image * self.positive_fraction)]
            negative = order[matched[order] == 0][: self.batch_size_per_image - len(positive)]
            nothing = torch.zeros_like(matched, dtype=torch.uint8)
            drawn.append([nothing.index_fill(0, chosen, 1) for chosen in (positive, negative)])
        positives, negatives = ([*part] for part in zip(*drawn, strict=True))
        objects = torch.cat(positives).sum()
        self.counts = objects + torch.cat(negatives).sum(), objects
        return positives, negatives


def build_network(design: Design, classes: int, **arguments: Any) -> DetectionNetwork:
    """A detector with first weights; `arguments` are those of the backbone."""
    backbone = PyramidBackbone(design.model, **arguments)
    network = DetectionNetwork((_retinanet if design.head == "retinanet" else _mask_rcnn)(design, backbone, classes))
    config = resolve_data_config(model=backbone.body)
    sizes: Any = design.sizes  # torchvision takes several, its annotation says one
    network.detector.transform = _Transform(sizes, design.longest, list(config["mean"]), list(config["std"]))
    return network


def find(network: nn.Module, images: Sequence[Tensor], names: Sequence[str]) -> list[dict[str, Tensor]]:
    """What the network finds in each image. A score that is not finite, which torchvision drops, stops all by name."""
    found, finite = _watched(network, images)
    if not finite:
        alone = (name for name, one in zip(names, images, strict=True) if not _watched(network, [one])[1])
        raise ValueError(f"the detector gave a score that is not finite for {next(alone, names[0])}")
    return found


def _watched(network: nn.Module, images: Sequence[Tensor]) -> tuple[list[dict[str, Tensor]], bool]:
    """With whether all answers of its heads were finite."""
    answers: list[Tensor] = []
    heads = [part for name, part in network.named_modules() if name.removeprefix("detector.") in HEADS]
    hooks = [head.register_forward_hook(lambda _, __, answer: answers.extend(_tensors(answer))) for head in heads]
    try:
        return network(images), all(bool(answer.isfinite().all()) for answer in answers)
    finally:
        for hook in hooks:
            hook.remove()


def _tensors(answer: Any) -> list[Tensor]:
    if isinstance(answer, Tensor):
        return [answer]
    return [tensor for part in (answer.values() if isinstance(answer, dict) else answer) for tensor in _tensors(part)]


class _Transform(GeneralizedRCNNTransform):
    """torchvision's, but masks are bool and pasted one by one: a hundred on a large photograph would take gigabytes."""

    def resize(self, image: Tensor, target: dict[str, Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor] | None]:
        height, width = image.shape[-2:]
        if min(height, width) * self.max_size < max(height, width):
            raise ValueError(f"an image of {width} x {height} pixels is too thin: it would shrink to nothing")
        shown, boxed = super().resize(image, target)
        if boxed is not None:  # of a box that is nothing in these pixels torchvision would make an error
            kept = (boxed["boxes"][:, 2:] > boxed["boxes"][:, :2]).all(1)
            boxed = boxed | {name: boxed[name][kept] for name in ("boxes", "labels", "masks") if name in boxed}
        return shown, boxed

    def postprocess(
        self,
        result: list[dict[str, Tensor]],
        image_shapes: list[tuple[int, int]],
        original_image_sizes: list[tuple[int, int]],
    ) -> list[dict[str, Tensor]]:
        if self.training:
            return result
        for found, shape, original in zip(result, image_shapes, original_image_sizes, strict=True):
            found["boxes"] = resize_boxes(found["boxes"], list(shape), list(original))
            if "masks" in found:
                masks = torch.zeros(len(found["masks"]), 1, *original, dtype=torch.bool, device=found["masks"].device)
                for place, (mask, box) in enumerate(zip(found["masks"], found["boxes"], strict=True)):
                    masks[place] = paste_masks_in_image(mask[None], box[None], original)[0] > 0.5
                found["masks"] = masks
        return result


def _retinanet(design: Design, backbone: PyramidBackbone, classes: int) -> RetinaNet:
    """Strides 8 to 32, and P6 and P7 above them; nine anchors per place. Class 0 never occurs, as in torchvision."""
    width, norm = design.width, design.norm
    maps = PyramidMaps(backbone, 1, width, LastLevelP6P7(backbone.channels[-1], width), norm)
    octaves = [tuple(int(side * 2 ** (third / 3)) for third in range(3)) for side in _sides(design.anchor)]
    anchors = _anchors(octaves)
    head = RetinaNetHead(width, anchors.num_anchors_per_location()[0], classes + 1, _norm(norm))
    detector = RetinaNet(maps, classes + 1, anchor_generator=anchors, head=head, detections_per_img=MOST)
    _answer_in_float32(detector.head)
    return detector


def _mask_rcnn(design: Design, backbone: PyramidBackbone, classes: int) -> MaskRCNN:
    """Strides 4 to 32 and one above for proposals; heads as wide as the pyramid, the boxes' layers four times that."""
    width, everything = design.width, classes + 1  # with the background
    maps = PyramidMaps(backbone, 0, width, LastLevelMaxPool(), design.norm)
    detector = MaskRCNN(
        maps,
        rpn_anchor_generator=_anchors([(side,) for side in _sides(design.anchor)]),
        rpn_pre_nms_top_n_train=2 * design.proposals,
        rpn_pre_nms_top_n_test=design.proposals,
        rpn_post_nms_top_n_train=2 * design.proposals,
        rpn_post_nms_top_n_test=design.proposals,
        box_roi_pool=_roi_pool(7, design.anchor),
        box_head=TwoMLPHead(width * 7 * 7, 4 * width),
        box_predictor=FastRCNNPredictor(4 * width, everything),
        box_batch_size_per_image=design.regions,
        box_detections_per_img=MOST,
        mask_roi_pool=_roi_pool(14, design.anchor),
        mask_head=MaskRCNNHeads(width, (width,) * 4, 1, _norm(design.norm)),
        mask_predictor=MaskRCNNPredictor(width, width, everything),
    )
    trained: Any = (detector.rpn, detector.roi_heads)
    for owner in trained:
        theirs = owner.fg_bg_sampler
        owner.fg_bg_sampler = _Sampler(theirs.batch_size_per_image, theirs.positive_fraction)
    for part in ("rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor"):
        _answer_in_float32(detector.get_submodule(part))
    return detector


def _norm(wanted: bool) -> Callable[..., nn.Module] | None:
    return partial(nn.GroupNorm, NORM_GROUPS) if wanted else None


def _sides(anchor: int) -> list[int]:
    return [anchor * 2**level for level in range(5)]


def _anchors(sides: Sequence[tuple[int, ...]]) -> AnchorGenerator:
    return AnchorGenerator(tuple(sides), ((0.5, 1.0, 2.0),) * len(sides))


def _roi_pool(cells: int, anchor: int) -> MultiScaleRoIAlign:
    """What counts as a large region follows the anchors: 224 px where the smallest is 32, as published."""
    return MultiScaleRoIAlign(["0", "1", "2", "3"], cells, sampling_ratio=2, canonical_scale=7 * anchor)


def _answer_in_float32(part: nn.Module) -> None:
    """Losses, box arithmetic and suppression need more than the 8 bits of bfloat16's mantissa."""
    part.register_forward_hook(_widened)


def _widened(_: nn.Module, __: Any, answer: Any) -> Any:
    match answer:
        case Tensor():
            return at_least_float32(answer)
        case dict():
            return {name: _widened(_, __, value) for name, value in answer.items()}
        case _:
            return type(answer)(_widened(_, __, value) for value in answer)


def _of_one_size(images: Sequence[Tensor]) -> Iterator[list[int]]:
    """Places of the images of each size."""
    places: dict[torch.Size, list[int]] = defaultdict(list)
    for place, image in enumerate(images):
        places[image.shape].append(place)
    yield from places.values()
