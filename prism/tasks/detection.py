"""Detection and instance segmentation: torchvision's RetinaNet and Mask R-CNN on any backbone.

Their anchors, heads, losses and suppression are torchvision's own; here is only what joins them to a backbone.
Parameters with 80 classes and width 256: see `tests/tasks/test_detection.py`, which holds them to the paper's.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from timm.data import resolve_data_config
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection import MaskRCNN, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.retinanet import RetinaNetHead
from torchvision.models.detection.roi_heads import paste_masks_in_image
from torchvision.models.detection.transform import GeneralizedRCNNTransform, resize_boxes
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock, LastLevelMaxPool, LastLevelP6P7

from prism.baselines.pyramid import PyramidBackbone
from prism.data.annotations import Annotated
from prism.data.pictures import unit_pixels
from prism.data.preprocessing import Preprocessing
from prism.metrics.average_precision import Result, as_results
from prism.metrics.complexity import PAPER_STEPS, macs_by_module, parameters, step_cost
from prism.model.backbone import Trace
from prism.model.metadata import Check, Metadata, checked, one_of, read_metadata, several, text, whole
from prism.model.weights import load_weights
from prism.tasks.learner import PAPER_WEIGHTS, Learner, Outcome, Weights, find_prism, mean_steps, prism_losses

Head = Literal["retinanet", "maskrcnn"]
TITLES: dict[Head, str] = {"retinanet": "RetinaNet", "maskrcnn": "Mask R-CNN"}
NORM_GROUPS = 8
MOST = 100  # detections of a picture: COCO counts no more


class Design(NamedTuple):
    """What a detector is built of; the defaults are the published ones."""

    model: str = "prism_tiny"
    head: Head = "retinanet"
    width: int = 256  # of the feature pyramid and the heads
    anchor: int = 32  # side of the smallest anchor in pixels
    sizes: tuple[int, ...] = (800,)  # short sides: in training one is drawn for each picture, judged is at the last
    longest: int = 1333  # but no side is longer
    proposals: int = 1000  # regions that Mask R-CNN looks at; in training it draws from twice as many
    regions: int = 512  # of these that one picture trains
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
    """Pictures (3, H, W) in [0, 1], each of its own size -> a dict a picture: boxes, labels from 1, scores, masks.

    The dicts are torchvision's, but masks (n, 1, H, W) are bool. In training, with targets, it gives the losses.
    When judged, only pictures of one size share a batch: none is padded to another's size, which would enter slots,
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

    def forward(self, pictures: Sequence[Tensor], targets: Sequence[dict[str, Tensor]] | None = None) -> Any:
        if self.training:
            return self.detector(list(pictures), targets)
        found: list[Any] = [None] * len(pictures)
        for places in _of_one_size(pictures):
            for place, result in zip(places, self.detector([pictures[p] for p in places]), strict=True):
                named = result["labels"] > 0  # RetinaNet has a score for class 0 too, which is none
                found[place] = {name: values[named] for name, values in result.items()}
        return found

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Of the backbone."""
        self.maps.backbone.set_grad_checkpointing(enable)

    def no_weight_decay(self) -> set[str]:
        prism = find_prism(self)
        return {f"detector.backbone.backbone.body.{name}" for name in prism.no_weight_decay()} if prism else set()


class Detector(Learner):
    """torchvision's losses, and PRISM's own where the backbone is one, unless they are switched off."""

    def __init__(self, network: DetectionNetwork, weights: Weights = PAPER_WEIGHTS, own_losses: bool = True):
        super().__init__()
        self.network, self.weights, self.own_losses = network, weights, own_losses

    def forward(self, pictures: list[Tensor], targets: list[dict[str, Tensor]]) -> Outcome:
        network = self.network
        assert isinstance(network, DetectionNetwork)
        losses = network(pictures, targets)
        trace = network.maps.take_trace()
        if trace is None:
            return Outcome(losses, {})
        own = prism_losses(trace, self.weights) if self.own_losses else {}
        return Outcome(losses | own, mean_steps(trace))


def build_network(design: Design, classes: int, **arguments: Any) -> DetectionNetwork:
    """A detector with first weights; `arguments` are those of the backbone."""
    backbone = PyramidBackbone(design.model, **arguments)
    network = DetectionNetwork((_retinanet if design.head == "retinanet" else _mask_rcnn)(design, backbone, classes))
    config = resolve_data_config(model=backbone.body)
    sizes: Any = design.sizes  # torchvision takes several, its annotation says one
    network.detector.transform = _Transform(sizes, design.longest, list(config["mean"]), list(config["std"]))
    return network


def describe(
    network: DetectionNetwork,
    design: Design,
    classes: Sequence[str],
    categories: Sequence[int],
    arguments: Mapping[str, Any],
    amodal: bool = True,
) -> Metadata:
    """What a file of weights must say so that `load_detector` can build the detector again.

    Of scenes also whether it learned whole objects (amodal), which is how it is evaluated.
    """
    seen: Any = network.detector.transform
    preprocessing = Preprocessing(design.sizes[-1], None, "bilinear", tuple(seen.image_mean), tuple(seen.image_std))
    return Metadata(
        task="detection",
        model=design.model,
        network=arguments,
        classes=[*classes],
        preprocessing=preprocessing.to_metadata(),
        design=design._asdict() | {"categories": [*categories], "amodal": amodal},
    )


class Loaded(NamedTuple):
    """A detector from a file, and what the file says of it."""

    network: DetectionNetwork
    design: Design
    classes: list[str]
    categories: list[int]


DESIGN: dict[str, Check] = {
    "model": text,
    "head": one_of(*TITLES),
    "width": whole(1, 65_536),
    "anchor": whole(1, 10_000),
    "sizes": several(whole(1, 100_000), 1, 100),
    "longest": whole(1, 100_000),
    "proposals": whole(1, 1_000_000),
    "regions": whole(1, 1_000_000),
    "norm": one_of(True, False),
    "categories": several(whole(0, 2**53), 0, 100_000),
    "amodal": one_of(True, False),
}


def load_detector(path: Path) -> Loaded:
    """The detector of a file of weights, ready to be used."""
    metadata = read_metadata(path)
    if metadata.task != "detection":
        raise ValueError(f"{path} does not hold a detector: train one with a recipe such as scenes-retinanet")
    classes, said = metadata.classes or [], dict(metadata.design)
    if reason := checked(said, DESIGN, "has no key"):
        raise ValueError(f"invalid metadata in {path}: design {reason}")
    categories, _ = said.pop("categories", [*range(1, len(classes) + 1)]), said.pop("amodal", True)
    design = Design(**{**said, "model": metadata.model, "sizes": tuple(said.get("sizes", Design().sizes))})
    network = build_network(design, len(classes), **metadata.network)
    load_weights(network, path)
    return Loaded(network.eval(), design, classes, categories)


@torch.inference_mode()
def detect(
    network: DetectionNetwork, pictures: Annotated, accelerator: Accelerator, batch: int, workers: int
) -> list[Result]:
    """What the network finds in all pictures, as COCO's result files have it; the same list in every process."""
    own = _Judged(pictures, accelerator.process_index, accelerator.num_processes)
    # with this collation a batch stays a list: pictures differ in size
    batches: Iterable[list[tuple[Tensor, int]]] = DataLoader(own, batch, num_workers=workers, collate_fn=list)
    results = []
    for pairs in batches:
        with accelerator.autocast():
            found = network([picture.to(accelerator.device) for picture, _ in pairs])
        for one, (_, image_id) in zip(found, pairs, strict=True):
            results += as_results(one, image_id, pictures.categories)
    return gather_object(results)


class Costs(NamedTuple):
    parameters: int
    macs: float  # of a picture


def costs(design: Design, classes: int, size: tuple[int, int] = (800, 1333), **arguments: Any) -> Costs:
    """Of a detector and a picture of this size, in which as much is found as may be.

    A PRISM inside is counted at the paper's mean steps.
    """
    network = build_network(design, classes, **arguments).eval()
    if isinstance(network.detector, MaskRCNN):
        proposals, regions = cast(Any, network.detector.rpn), cast(Any, network.detector.roi_heads)
        # whatever the weights, nothing is suppressed and a hundred regions get a mask
        proposals.nms_thresh, regions.nms_thresh, regions.score_thresh = 1.0, 1.0, -1.0
    prism, further = find_prism(network), 0.0
    if prism is not None:
        prism.fixed_steps = 1
        steps = step_cost(prism, (_padded(size[0]), _padded(size[1])))
        further = steps.macs(PAPER_STEPS) - steps.at_one_step
    return Costs(parameters(network), macs_by_module(_Unbatched(network), size)[""] + further)


class _Unbatched(nn.Module):
    """Takes a batch where a detector takes a list."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Any:
        return self.network(list(images))


def _padded(side: int) -> int:
    return -(-side // 32) * 32


class _Judged(Dataset[tuple[Tensor, int]]):
    """This process's pictures of a split: every world-th one."""

    def __init__(self, pictures: Annotated, rank: int, world: int):
        self.pictures, self.indices = pictures, range(rank, len(pictures), world)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture, target = self.pictures[self.indices[index]]
        return unit_pixels(picture), target["image_id"]


class _Transform(GeneralizedRCNNTransform):
    """torchvision's, but masks are bool and pasted one by one: a hundred on a large photograph would take gigabytes."""

    def resize(self, image: Tensor, target: dict[str, Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor] | None]:
        height, width = image.shape[-2:]
        if min(height, width) * self.max_size < max(height, width):
            raise ValueError(f"a picture of {width} x {height} pixels is too thin: it would shrink to nothing")
        return super().resize(image, target)

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
    """Strides 8 to 32, and P6 and P7 above them; nine anchors a place. Class 0 never occurs, as torchvision has it."""
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
            return answer.float()
        case dict():
            return {name: _widened(_, __, value) for name, value in answer.items()}
        case _:
            return type(answer)(_widened(_, __, value) for value in answer)


def _of_one_size(pictures: Sequence[Tensor]) -> Iterator[list[int]]:
    """Places of the pictures of each size."""
    places: dict[torch.Size, list[int]] = defaultdict(list)
    for place, picture in enumerate(pictures):
        places[picture.shape].append(place)
    yield from places.values()
