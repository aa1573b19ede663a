"""COCO's numbers of detectors, and what they cost."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection import MaskRCNN

from prism.data.annotations import Annotated
from prism.data.images import unit_pixels
from prism.metrics.average_precision import Result, as_results, by_subset, flagged, ground_truth, instances
from prism.metrics.complexity import PAPER_STEPS, macs_by_module, parameters, step_cost
from prism.model.creation import Checkpoint
from prism.reporting.tables import Row
from prism.tasks.detection.loading import load_detector
from prism.tasks.detection.network import TITLES, Design, DetectionNetwork, build_network, find
from prism.tasks.learner import find_prism
from prism.tasks.task import Place, Progress, check_classes, with_files


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


def evaluate(
    subjects: Sequence[DetectorSubject], splits: Mapping[str, Annotated], place: Place, progress: Progress
) -> list[Row]:
    """Rows of COCO's twelve numbers for each detector: of all objects, and of those flagged as occluded.

    Of images that `prism occlusion --write` made, also of the masked objects, of those that a block over another one
    brushes, and of the untouched.
    """
    if place.processes is not None:
        place.processes.device = torch.device(place.device)  # which an Accelerator does not take by itself
    accelerator = Accelerator(cpu=torch.device(place.device).type == "cpu")
    rows = []
    for split, images in splits.items():
        truth = ground_truth(images)
        subsets = _subsets(truth)
        for subject in subjects:
            progress(f"{subject.head} on {subject.backbone}, {split}")
            network: Any = subject.network.to(place.device)
            results = detect(network, images, accelerator, place.arguments(8)["batch"], place.workers)
            found = by_subset(truth, results, subsets, subject.finds_masks)
            rows += [subject.key | {"split": split} | row for row in found]
    return rows


def subjects_of(checkpoints: Sequence[Checkpoint], images: Annotated) -> list[DetectorSubject]:
    """The detectors of these files, which must know the classes of the images."""
    subjects = []
    for file in with_files(checkpoints):
        network, design, classes, _ = load_detector(file)
        check_classes(file, classes, images.classes)
        title, run = TITLES[design.head], str(file.with_suffix(""))
        subjects.append(DetectorSubject(design.model, title, run, network, network.finds_masks, images.categories))
    return subjects


def _subsets(truth: dict[str, Any]) -> dict[str, set[int]]:
    every = instances(truth)
    subsets = {"all": every, "occluded": flagged(truth)}
    if any("masked" in annotation for annotation in truth["annotations"]):
        masked = flagged(truth, "masked")
        brushed = {a["id"] for a in truth["annotations"] if a.get("hidden_by_other", a.get("hidden_besides"))}
        brushed &= every - masked
        subsets |= {"masked": masked, "brushed": brushed, "untouched": every - masked - brushed}
    return subsets


class Costs(NamedTuple):
    parameters: int
    macs: float  # of an image


def costs(design: Design, classes: int, size: tuple[int, int] = (800, 1333), **arguments: Any) -> Costs:
    """Of a detector and an image of this size, in which as much is found as may be.

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


class _Own(Dataset[tuple[Tensor, int, str]]):
    """This process's images of a split: every world-th one."""

    def __init__(self, pictures: Annotated, rank: int, world: int):
        self.pictures, self.indices = pictures, range(rank, len(pictures), world)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Tensor, int, str]:
        picture, target = self.pictures[self.indices[index]]
        return unit_pixels(picture), target["image_id"], self.pictures.name(self.indices[index])
