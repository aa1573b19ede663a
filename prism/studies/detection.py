"""What is in a picture, and where? Boxes, masks and labels drawn on photographs; COCO's numbers of a data set."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import matplotlib
import torch
from accelerate import Accelerator
from PIL import Image
from torch import Tensor
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from prism.data.annotations import Annotated
from prism.data.coco import CocoPictures
from prism.data.objects import ScenePictures, open_annotated
from prism.data.pictures import check_pictures, read_picture, unit_pixels
from prism.metrics.average_precision import as_results, by_subset, flagged, ground_truth, instances
from prism.model.metadata import read_metadata
from prism.occlusion.benchmark import IMAGENET_MEAN
from prism.occlusion.detection import DetectorSubject, cover
from prism.occlusion.fills import fill
from prism.occlusion.masks import mask_generator
from prism.reporting.figures import COLOURS
from prism.tasks.detection import TITLES, Loaded, detect, load_detector

OPACITY = 0.5
SIDE = 96  # of scenes, where no detector says it
FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"  # torchvision brings none that can be scaled
NAMED = 3  # objects that a row of the table has room for


class Occlusion(NamedTuple):
    """Two of the objects that were found lose this share of their pixels, and the detector looks again."""

    share: float
    seed: int = 0


@torch.inference_mode()
def draw(
    detector: Loaded, images: Sequence[Path], out: Path, threshold: float = 0.5, occlusion: Occlusion | None = None
) -> list[dict[str, Any]]:
    """Write NAME-detected.png and .json of every image into `out`; return rows of what was found.

    With an occlusion also NAME-detected-occluded.png and .json: of the picture in which two of the objects found are
    hidden, if any was found.
    """
    for name, number in (("threshold", threshold), ("share", occlusion.share if occlusion else 0)):
        if not 0 <= number <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {number}")
    check_pictures(images)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for path in images:
        picture, stem = unit_pixels(read_picture(path)), out / f"{path.stem}-detected"
        found = _confident(detector.network([picture])[0], threshold)
        rows.append(_write(detector, picture, found, stem, str(path)))
        if occlusion and len(found["labels"]):
            hidden = _hidden(found, picture, occlusion)
            again = _confident(detector.network([hidden])[0], threshold)
            rows.append(_write(detector, hidden, again, out / f"{stem.name}-occluded", f"{path}, occluded"))
        elif occlusion:
            rows.append({"image": f"{path}, occluded", "objects": 0, "found": "nothing was found that could be hidden"})
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
        side = min(canvas.shape[1:])
        canvas = draw_bounding_boxes(
            canvas,
            found["boxes"],
            names,
            colours,
            width=max(1, round(side / 150)),
            font=str(FONT),
            font_size=max(9, round(side / 26)),
            label_colors="white",
            label_background_colors=colours,
            fill_labels=True,
        )
    return Image.fromarray(canvas.permute(1, 2, 0).numpy())


def evaluate(
    files: Sequence[Path], pictures: Annotated, accelerator: Accelerator, batch: int, workers: int
) -> list[dict[str, Any]]:
    """Rows of COCO's twelve numbers for each detector: of all objects, and of those flagged as occluded.

    Of pictures that `prism occlusion --write` made, also of the masked objects, of those that a block over another one
    brushes, and of the untouched.
    """
    truth = ground_truth(pictures)
    every = instances(truth)
    subsets = {"all": every, "occluded": flagged(truth)}
    if any("masked" in annotation for annotation in truth["annotations"]):
        masked = flagged(truth, "masked")
        brushed = {a["id"] for a in truth["annotations"] if a.get("hidden_besides")} & every - masked
        subsets |= {"masked": masked, "brushed": brushed, "untouched": every - masked - brushed}
    rows = []
    for subject in subjects_of(files, pictures):
        network: Any = subject.network.to(accelerator.device)
        results = detect(network, pictures, accelerator, batch, workers)
        rows += [subject.key | row for row in by_subset(truth, results, subsets, subject.finds_masks)]
    return rows


def open_for(
    files: Sequence[Path],
    data: str,
    split: str,
    limit: int | None = None,
    visible: bool = False,
    masks: bool | None = None,
) -> CocoPictures | ScenePictures:
    """The pictures that these detectors are judged on. Scenes are of the size and the truth of their training.

    `visible` asks of scenes for what is seen of objects, whatever was trained. Unless told, annotations must have
    masks where a detector finds them.
    """
    said = [read_metadata(file) for file in files]
    amodal = {metadata.design.get("amodal", True) for metadata in said} if not visible else {False}
    if len(amodal) > 1 and data == "scenes":
        raise ValueError("some detectors were trained on whole objects, some on what is seen of them: judge them apart")
    if masks is None:
        masks = any(metadata.design.get("head") == "maskrcnn" for metadata in said)
    size = said[0].preprocessing.get("size", SIDE) if said else SIDE
    return open_annotated(data, split, size, limit, amodal=amodal != {False}, masks=masks)


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


def _hidden(found: Mapping[str, Tensor], picture: Tensor, occlusion: Occlusion) -> Tensor:
    """The picture with a block over each of two objects that were found; without masks, of their boxes."""
    masks = found["masks"][:, 0] if "masks" in found else _filled_boxes(found["boxes"], picture)
    generator = mask_generator(crc32(picture.numpy().tobytes()), occlusion.seed)  # alike beside any other pictures
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
