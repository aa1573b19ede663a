"""Objects in photographs: boxes, masks and labels, drawn and as JSON; again with parts of them hidden."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import matplotlib
import torch
from PIL import Image
from torch import Tensor
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from prism.data.images import check_images, read_image, unit_pixels
from prism.metrics.average_precision import as_results
from prism.occlusion.hiding import hide
from prism.occlusion.masks import mask_generator
from prism.reporting.figures import COLOURS
from prism.reporting.files import one_line, write_text
from prism.reporting.tables import Row
from prism.tasks.detection.covering import cover
from prism.tasks.detection.loading import Loaded
from prism.tasks.detection.network import find

OPACITY = 0.5
FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"  # torchvision brings none that can be scaled
NAMED = 3  # objects that a row of the table has room for


class Occlusion(NamedTuple):
    """Two of the objects that were found lose this share of their pixels, and the detector looks again."""

    share: float
    seed: int = 0


@torch.inference_mode()
def draw(
    detector: Loaded, images: Sequence[Path], out: Path, threshold: float = 0.5, occlusion: Occlusion | None = None
) -> list[Row]:
    """Write NAME-detected.png and .json of every image into `out`; return rows of what was found.

    With an occlusion also NAME-detected-occluded.png and .json: of the image in which two of the objects found are
    hidden, if any was found.
    """
    for name, number in (("threshold", threshold), ("share", occlusion.share if occlusion else 0)):
        if not 0 <= number <= 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {number}")
    check_images(images)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for path in images:
        image, stem = unit_pixels(read_image(path)), out / f"{path.stem}-detected"
        found = _confident(find(detector.network, [image], [str(path)])[0], threshold)
        rows.append(_write(detector, image, found, stem, str(path)))
        if occlusion and len(found["labels"]):
            hidden = _hidden(found, image, occlusion)
            again = _confident(find(detector.network, [hidden], [str(path)])[0], threshold)
            rows.append(_write(detector, hidden, again, out / f"{stem.name}-occluded", f"{path}, occluded"))
        elif occlusion:
            rows.append({"image": f"{path}, occluded", "objects": 0, "found": "nothing was found that could be hidden"})
    return rows


def drawing(image: Tensor, found: Mapping[str, Tensor], classes: Sequence[str]) -> Image.Image:
    """Each object in a colour of its class, with its name and score."""
    canvas = (image * 255).round().to(torch.uint8)
    colours: list[Any] = [COLOURS[int(label) % len(COLOURS)] for label in found["labels"]]
    if len(colours):
        if "masks" in found:
            canvas = draw_segmentation_masks(canvas, found["masks"][:, 0], OPACITY, colours)
        pairs = zip(found["labels"].tolist(), found["scores"].tolist(), strict=True)
        names = [f"{one_line(str(classes[label - 1]))} {score:.2f}" for label, score in pairs]
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


def _confident(found: dict[str, Tensor], threshold: float) -> dict[str, Tensor]:
    kept = found["scores"] >= threshold
    return {name: values[kept].cpu() for name, values in found.items()}


def _hidden(found: Mapping[str, Tensor], image: Tensor, occlusion: Occlusion) -> Tensor:
    """The image with a block over each of two objects that were found; without masks, of their boxes."""
    masks = found["masks"][:, 0] if "masks" in found else _filled_boxes(found["boxes"], image)
    generator = mask_generator(crc32(image.numpy().tobytes()), occlusion.seed)  # alike beside any other images
    every = torch.ones(len(masks), dtype=torch.bool)
    blocks = cover(masks, every, occlusion.share, generator).hidden
    return hide(image, blocks, generator)


def _filled_boxes(boxes: Tensor, image: Tensor) -> Tensor:
    masks = torch.zeros(len(boxes), *image.shape[1:], dtype=torch.bool)
    for mask, (left, top, right, bottom) in zip(masks, boxes.round().long().tolist(), strict=True):
        mask[top:bottom, left:right] = True
    return masks


def _write(detector: Loaded, image: Tensor, found: dict[str, Tensor], stem: Path, title: str) -> Row:
    drawing(image, found, detector.classes).save(stem.with_name(f"{stem.name}.png"))
    objects = as_results(found, 0, range(1, len(detector.classes) + 1))
    for item in objects:
        del item["image_id"]
        label = item.pop("category_id")
        item |= {"class": detector.classes[label - 1], "category_id": detector.categories[label - 1]}
    said = {"image": title, "width": image.shape[2], "height": image.shape[1], "objects": objects}
    write_text(stem.with_name(f"{stem.name}.json"), json.dumps(said, indent=2) + "\n")
    names = [f"{item['class']} {item['score']:.2f}" for item in objects]
    rest = f", {len(names) - NAMED} more" if len(names) > NAMED else ""
    return {"image": title, "objects": len(names), "found": ", ".join(names[:NAMED]) + rest}
