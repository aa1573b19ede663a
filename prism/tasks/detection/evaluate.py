"""COCO's numbers of detectors, and what they cost."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection import MaskRCNN

from prism.data.annotations import Annotated
from prism.data.images import unit_pixels
from prism.metrics import complexity
from prism.metrics.average_precision import Result, Truth, as_results, flagged, instances
from prism.metrics.complexity import Costs
from prism.tasks.detection.network import Design, DetectionNetwork, build_network, find


class DetectorSubject(NamedTuple):
    """A detector under test: images (3, H, W) in [0, 1] -> torchvision's dicts.

    Several of one backbone and head are its training runs, told apart by `run`.
    """

    backbone: str
    head: str  # as people write it: RetinaNet, Mask R-CNN
    run: str
    network: nn.Module
    finds_masks: bool
    categories: Sequence[int]  # ids in the truth of its labels 1, 2, ...

    @property
    def key(self) -> dict[str, str]:
        return {"backbone": self.backbone, "head": self.head, "run": self.run}


@torch.inference_mode()
def detect(
    network: DetectionNetwork, pictures: Annotated, accelerator: Accelerator, batch: int, workers: int
) -> list[Result]:
    """What the network finds in all images, as COCO's result files have it; the same list in every process."""
    own = _Own(pictures, accelerator.process_index, accelerator.num_processes)
    # with this collation a batch stays a list: images differ in size
    batches: Iterable[list[tuple[Tensor, int, str]]] = DataLoader(own, batch, num_workers=workers, collate_fn=list)
    results = []
    for triples in batches:
        with accelerator.autocast():
            shown, names = [picture.to(accelerator.device) for picture, *_ in triples], [name for *_, name in triples]
            found = find(network, shown, names)
        for one, (_, image_id, _) in zip(found, triples, strict=True):
            results += as_results(one, image_id, pictures.categories)
    return gather_object(results)


def subsets_of(truth: Truth, masked: set[int] | None = None, brushed: Collection[int] = ()) -> dict[str, set[int]]:
    """Ids of the objects that are evaluated apart: what blocks lie over, brush or leave alone, if that is known."""
    every = instances(truth)
    found = {"all": every}
    if masked is not None:
        brushed = every.intersection(brushed) - masked
        found |= {"masked": masked & every, "brushed": brushed, "untouched": every - masked - brushed}
    return found | {"occluded": flagged(truth)}


def told_subsets(truth: Truth) -> dict[str, set[int]]:
    """The same, of images that `prism occlusion --write` made: their annotations say what is hidden."""
    if not any("masked" in annotation for annotation in truth["annotations"]):
        return subsets_of(truth)
    brushed = [a["id"] for a in truth["annotations"] if a.get("hidden_by_other", a.get("hidden_besides"))]
    return subsets_of(truth, flagged(truth, "masked"), brushed)


def costs(design: Design, classes: int, size: tuple[int, int] = (800, 1333), **arguments: Any) -> Costs:
    """Of a detector and an image of this size, in which as much is found as may be."""
    network = build_network(design, classes, **arguments).eval()
    if isinstance(network.detector, MaskRCNN):
        proposals, regions = cast(Any, network.detector.rpn), cast(Any, network.detector.roi_heads)
        # whatever the weights, nothing is suppressed and a hundred regions get a mask
        proposals.nms_thresh, regions.nms_thresh, regions.score_thresh = 1.0, 1.0, -1.0
    return complexity.costs(_Unbatched(network), size)


class _Unbatched(nn.Module):
    """Takes a batch where a detector takes a list."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Any:
        return self.network(list(images))


class _Own(Dataset[tuple[Tensor, int, str]]):
    """This process's images of a split: every world-th one."""

    def __init__(self, pictures: Annotated, rank: int, world: int):
        self.pictures, self.indices = pictures, range(rank, len(pictures), world)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        picture, target = self.pictures[self.indices[index]]
        return unit_pixels(picture), target["image_id"], self.pictures.name(self.indices[index])
