"""What is where in an image? The class of every pixel, laid over the image beside a legend, and as an index mask."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from prism.data.images import check_images, read_image
from prism.occlusion.runner import Subject
from prism.reporting.figures import class_colours, contours
from prism.reporting.files import one_line
from prism.reporting.tables import Row
from prism.tasks.segmentation.evaluate import label_pixels

DPI = 110
SIDE = 5.0  # inches of the image's long side
OPACITY = 0.6
SHOWN = 3  # classes that a row of the table has room for


@torch.inference_mode()
def segment(subject: Subject, classes: Sequence[str], images: Sequence[Path], out: Path) -> list[Row]:
    """Write NAME-overlay.png and NAME-mask.png of every image into `out`; return rows of what was found."""
    check_images(images)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for path in images:
        pixels = np.array(read_image(path))
        image = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
        labels = label_pixels(subject, image, len(classes), [str(path)])[0].numpy().astype(np.uint8)
        index_mask(labels, len(classes)).save(out / f"{path.stem}-mask.png")
        overlay(pixels, labels, classes).savefig(out / f"{path.stem}-overlay.png", dpi=DPI)
        rows.append(
            {"image": str(path), "size": f"{pixels.shape[1]} x {pixels.shape[0]}", "found": _found(labels, classes)}
        )
    return rows


def index_mask(labels: np.ndarray, classes: int) -> Image.Image:
    """A palette image: its pixels are class numbers, its colours those of the overlay."""
    mask = Image.fromarray(labels)
    mask.putpalette((class_colours(classes) * 255).round().astype(np.uint8).tobytes())
    return mask


def overlay(pixels: np.ndarray, labels: np.ndarray, classes: Sequence[str]) -> Figure:
    """Classes as colours over the grey image, contours in white, and a legend of what is there."""
    colours = class_colours(len(classes))
    grey = pixels.mean(-1, keepdims=True) / 255
    drawn = (1 - OPACITY) * grey + OPACITY * colours[labels]
    drawn[contours(labels)] = 1.0
    height, width = labels.shape
    inches = SIDE / max(height, width)
    figure = Figure(figsize=(max(1.5, inches * width) + 1.9, max(1.5, inches * height)), layout="constrained")
    axis = figure.add_subplot()
    axis.imshow(drawn, interpolation="nearest")
    axis.set_axis_off()
    shares = _shares(labels)
    entries = [
        Patch(color=to_hex(colours[n]), label=f"{one_line(classes[n])} {_per_cent(share)}") for n, share in shares
    ]
    axis.legend(handles=entries, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    return figure


def _shares(labels: np.ndarray) -> list[tuple[int, float]]:
    """Classes that are there and their shares of the image, largest first."""
    numbers, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(int(numbers[place]), float(counts[place] / labels.size)) for place in order]


def _found(labels: np.ndarray, classes: Sequence[str]) -> str:
    shares = _shares(labels)
    said = ", ".join(f"{classes[number]} {_per_cent(share)}" for number, share in shares[:SHOWN])
    return said if len(shares) <= SHOWN else f"{said}, {len(shares) - SHOWN} more"


def _per_cent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "< 1%"
