"""What is in a picture, and where? Boxes, masks and labels drawn on photographs; COCO's numbers of a data set."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from PIL import Image
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from prism.data.pictures import read_picture, unit_pixels
from prism.evaluation.complexity import PAPER_STEPS, macs_by_module, parameters, step_cost
from prism.evaluation.detection import Annotated, as_results, by_subset, flagged, ground_truth, instances
from prism.occlusion.benchmark import IMAGENET_MEAN
from prism.occlusion.detection import PUBLISHED, DetectorSubject, cover
from prism.occlusion.fills import fill
from prism.occlusion.masks import mask_generator
from prism.occlusion.report import COLOURS
from prism.tasks.detection import TITLES, Design, Loaded, build_network, detect, load_detector
from prism.tasks.learner import find_prism

OPACITY = 0.5
NAMED = 3  # objects that a row of the table has room for


class Occlusion(NamedTuple):
    """Two of the objects that were found lose this share of their pixels, and the detector looks again."""

    share: float
    seed: int = 0


@torch.inference_mode()
def draw(
    detector: Loaded, images: Sequence[Path], out: Path, threshold: float = 0.5, occlusion: Occlusion | None = None
) -> list[dict[str, Any]]:
    """Write NAME.png and NAME.json of every image into `out`; return rows of what was found.

    With an occlusion also NAME-occluded.png and .json: of the picture in which two of the objects found are hidden.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie between 0 and 1, got {threshold}")
    twice = [name for name, times in Counter(path.stem for path in images).items() if times > 1]
    if twice:
        raise ValueError(f"two pictures are called {twice[0]}: their drawings would have one name")
    pictures = [unit_pixels(read_picture(path)) for path in images]  # all first: a bad one stops early
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (path, picture) in enumerate(zip(images, pictures, strict=True)):
        found = _confident(detector.network([picture])[0], threshold)
        rows.append(_write(detector, picture, found, out / path.stem, str(path)))
        if occlusion:
            hidden = _hidden(found, picture, occlusion, number)
            again = _confident(detector.network([hidden])[0], threshold)
            rows.append(_write(detector, hidden, again, out / f"{path.stem}-occluded", f"{path}, occluded"))
    return rows


def drawing(picture: Tensor, found: Mapping[str, Tensor], classes: Sequence[str]) -> Image.Image:
    """Each object in a colour of its class, with its name and score."""
    canvas = (picture * 255).round().to(torch.uint8)
    colours: list[Any] = [COLOURS[int(label) % len(COLOURS)] for label in found["labels"]]
    if len(colours):
        if "masks" in found:
            canvas = draw_segmentation_masks(canvas, found["masks"][:, 0], OPACITY, colours)
        pairs = zip(found["labels"].tolist(), found["scores"].tolist(), strict=True)
        names = [f"{classes[label - 1]} {score:.2f}" for label, score in pairs]
        width = max(1, round(min(canvas.shape[1:]) / 200))
        canvas = draw_bounding_boxes(canvas, found["boxes"], names, colours, width=width)
    return Image.fromarray(canvas.permute(1, 2, 0).numpy())


def evaluate(
    files: Sequence[Path], pictures: Annotated, accelerator: Accelerator, batch: int, workers: int
) -> list[dict[str, Any]]:
    """Rows of COCO's twelve numbers for each detector: of all objects, and of those flagged as occluded."""
    truth = ground_truth(pictures)
    subsets = {"all": instances(truth), "occluded": flagged(truth)}
    rows = []
    for subject in subjects_of(files, pictures):
        network: Any = subject.network.to(accelerator.device)
        results = detect(network, pictures, accelerator, batch, workers)
        rows += [subject.key | row for row in by_subset(truth, results, subsets, subject.finds_masks)]
    return rows


def costs(design: Design, classes: int = 80, size: tuple[int, int] = (800, 1333)) -> dict[str, Any]:
    """Parameters beside the paper's, and multiply-accumulates of a picture in which as much is found as may be.

    A PRISM inside is counted at the paper's mean steps.
    """
    network = build_network(design, classes).eval()
    if isinstance(network.detector, MaskRCNN):
        regions: Any = network.detector.roi_heads
        regions.score_thresh = -1.0  # whatever the weights, a mask for each of a hundred regions
    prism, further = find_prism(network), 0.0
    if prism is not None:
        prism.fixed_steps = 1
        steps = step_cost(prism, (_padded(size[0]), _padded(size[1])))
        further = steps.macs(PAPER_STEPS) - steps.at_one_step
    macs = macs_by_module(_Unbatched(network), size)[""] + further
    paper = PUBLISHED["PRISM"][design.head == "maskrcnn"][0] if design.model == "prism_tiny" else None
    return {
        "detector": f"{TITLES[design.head]} on {design.model}",
        "M parameters": parameters(network) / 1e6,
        "paper": paper,
        "of the backbone": parameters(network.maps.backbone) / 1e6,
        f"GMAC at {size[0]} x {size[1]}": macs / 1e9,
    }


class _Unbatched(nn.Module):
    """Takes a batch where a detector takes a list."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Any:
        return self.network(list(images))


def _padded(side: int) -> int:
    return -(-side // 32) * 32


def subjects_of(files: Sequence[Path], pictures: Annotated) -> list[DetectorSubject]:
    """The detectors of these files, which must know the classes of the pictures."""
    subjects = []
    for file in files:
        loaded = load_detector(file)
        if loaded.classes != pictures.classes:
            known, asked = len(loaded.classes), len(pictures.classes)
            raise ValueError(f"{file} knows {known} classes, which are not the {asked} of the data")
        name, head, run = loaded.design.model, TITLES[loaded.design.head], str(file.with_suffix(""))
        network = loaded.network
        subjects.append(DetectorSubject(name, head, run, network, network.finds_masks, pictures.categories))
    return subjects


def _confident(found: dict[str, Tensor], threshold: float) -> dict[str, Tensor]:
    kept = found["scores"] >= threshold
    return {name: values[kept].cpu() for name, values in found.items()}


def _hidden(found: Mapping[str, Tensor], picture: Tensor, occlusion: Occlusion, number: int) -> Tensor:
    """The picture with a block over each of two objects that were found; without masks, of their boxes."""
    masks = found["masks"][:, 0] if "masks" in found else _filled_boxes(found["boxes"], picture)
    generator = mask_generator(number, occlusion.seed)
    every = torch.ones(len(masks), dtype=torch.bool)
    blocks = cover(masks, every, occlusion.share, generator).hidden
    return fill(picture, blocks, "mean", torch.tensor(IMAGENET_MEAN), picture, generator)


def _filled_boxes(boxes: Tensor, picture: Tensor) -> Tensor:
    masks = torch.zeros(len(boxes), *picture.shape[1:], dtype=torch.bool)
    for mask, (left, top, right, bottom) in zip(masks, boxes.round().long().tolist(), strict=True):
        mask[top:bottom, left:right] = True
    return masks


def _write(detector: Loaded, picture: Tensor, found: dict[str, Tensor], stem: Path, title: str) -> dict[str, Any]:
    drawing(picture, found, detector.classes).save(stem.with_name(f"{stem.name}.png"))
    objects = as_results(found, 0, range(1, len(detector.classes) + 1))
    for item in objects:
        del item["image_id"]
        label = item.pop("category_id")
        item |= {"class": detector.classes[label - 1], "category_id": detector.categories[label - 1]}
    said = {"image": title, "width": picture.shape[2], "height": picture.shape[1], "objects": objects}
    stem.with_name(f"{stem.name}.json").write_text(json.dumps(said, indent=2) + "\n")
    names = [f"{item['class']} {item['score']:.2f}" for item in objects]
    rest = f", {len(names) - NAMED} more" if len(names) > NAMED else ""
    return {"image": title, "objects": len(names), "found": ", ".join(names[:NAMED]) + rest}
