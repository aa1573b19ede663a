"""What do prototypes stand for? For each code of the memory, the regions of pictures whose slots recalled it.

B images, T steps, K slots, (H, W) cells of a stage's grid.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from prism.model.backbone import Prism
from prism.model.stage import StageTrace
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.pairs import as_seen
from prism.studies.study import (
    SKIPPED,
    STAGES,
    Progress,
    Section,
    Study,
    Tables,
    column,
    other_subjects,
    save,
    shown,
    skipped,
)

AT_ONCE = 16  # images of which slot maps are held
PICTURES, QUICK_PICTURES = 500, 100
REGIONS = 6  # of a code
CODES = 5  # of a stage in the figure
ENOUGH = 3  # regions of a code in the figure
EDGES = ("left", "top", "right", "bottom")


class Region(NamedTuple):
    """A part of a picture that a slot won when it recalled the code."""

    image: int  # its place among the images
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels, the last two the first ones outside
    strength: float  # the largest share of a cell that the slot won there


class Prototype(NamedTuple):
    """A code and the regions most typical of it, strongest first, at most one of each image."""

    uses: int  # how often it was recalled, over all images, steps and slots that held something
    regions: list[Region]


@torch.inference_mode()
def atlas(network: Prism, images: Tensor, per_code: int) -> list[dict[int, Prototype]]:
    """For each stage, the codes that were recalled and their regions; images are normalised, (B, 3, H, W).

    A slot that nowhere won more than an even share, 1 / K, holds nothing: what it recalls stands for nothing.
    """
    if network.memory != "vq":
        raise ValueError(f"this PRISM has no prototypes: its memory is {network.memory!r}, not 'vq'")
    size = images.shape[-2], images.shape[-1]
    uses: list[dict[int, int]] = [defaultdict(int) for _ in network.stages]
    found: list[dict[int, list[Region]]] = [defaultdict(list) for _ in network.stages]
    for first in range(0, len(images), AT_ONCE):
        trace = network.forward_traced(images[first : first + AT_ONCE]).trace
        for stage, counts, regions in zip(trace.stages, uses, found, strict=True):
            for code, region in _regions(stage, first, size):
                counts[code] += 1
                regions[code].append(region)
    return [
        {code: Prototype(counts[code], _typical(regions[code], per_code)) for code in sorted(counts)}
        for counts, regions in zip(uses, found, strict=True)
    ]


def _regions(stage: StageTrace, first: int, size: tuple[int, int]) -> list[tuple[int, Region]]:
    """Every use of a code and where: the step's slot map around its peak."""
    assert stage.codes is not None
    assert stage.slot_maps is not None
    peaks, slots = stage.slot_maps.amax((-2, -1)), stage.slot_maps.shape[2]  # (B, T, K), 0 in steps not taken
    held = peaks > 1 / slots
    maps, codes, strengths = stage.slot_maps[held], stage.codes[held].tolist(), peaks[held].tolist()
    owners = (first + held.nonzero()[:, 0]).tolist()
    boxes = _boxes(around_peak(maps), size)
    uses = zip(codes, owners, boxes, strengths, strict=True)
    return [(code, Region(image, box, strength)) for code, image, box, strength in uses]


def around_peak(maps: Tensor) -> Tensor:
    """The connected cells around the highest one that have at least half of its share: (n, H, W) -> bool."""
    flat = maps.flatten(1)
    strong = maps >= maps.amax((-2, -1), keepdim=True) / 2
    reached = F.one_hot(flat.argmax(1), flat.shape[1]).view_as(maps).float()
    for _ in range(flat.shape[1]):
        spread = F.max_pool2d(reached[:, None], 3, stride=1, padding=1)[:, 0] * strong
        if spread.equal(reached):
            break
        reached = spread
    return reached.bool()


def _boxes(masks: Tensor, size: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Tight boxes around cells (n, H, W), in pixels of the picture."""
    edges = []
    for axis, pixels in ((-2, size[1]), (-1, size[0])):  # columns first, as boxes are written
        occupied = masks.any(axis).int()  # (n, cells)
        cells = occupied.shape[1]
        start, end = occupied.argmax(1), cells - occupied.flip(1).argmax(1)
        edges.append((start * pixels // cells, -(-end * pixels // cells)))
    (left, right), (top, bottom) = edges
    return [tuple(box) for box in torch.stack([left, top, right, bottom], dim=1).tolist()]  # pyright: ignore


def _typical(regions: list[Region], count: int) -> list[Region]:
    best: dict[int, Region] = {}
    for region in sorted(regions, key=lambda region: -region.strength):
        best.setdefault(region.image, region)
    return list(best.values())[:count]


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Every code's uses and regions, and the stages' use of their codebooks; writes the pictures that will be shown."""
    found = material.classifiers()
    subject = next((s for s in found.prisms if s.model.memory == "vq"), None)
    if subject is None:
        raise Inapplicable("only a PRISM with a quantised memory has prototypes, and there is none")
    others = other_subjects(found.subjects, subject)
    count = min(len(found.pictures), QUICK_PICTURES if material.quick else PICTURES)
    progress(f"looking at {count} pictures")
    pictures = torch.stack([found.pictures[index][0] for index in range(count)])
    network = subject.model.eval().to(material.device)
    assert isinstance(network, Prism)
    stages = atlas(network, as_seen(pictures.to(material.device), subject), REGIONS)
    codes, regions = [], []
    for stage, prototypes in enumerate(stages, start=1):
        uses = torch.tensor([prototype.uses for prototype in prototypes.values()]).double()
        shares = uses / uses.sum()
        codes.append(
            {
                "model": subject.name,
                "run": subject.run,
                "stage": stage,
                "codes": len(network.stages[stage - 1].step.memory.codebook.codes),  # pyright: ignore
                "recalled": len(prototypes),
                "uses": int(uses.sum()),
                "perplexity": float(torch.special.entr(shares).sum().exp()),
                "largest share": float(shares.max()),
                "pictures": count,
                "pixels": pictures.shape[-2] * pictures.shape[-1],
            }
        )
        regions += [
            {"stage": stage, "code": code, "uses": prototype.uses, "rank": rank, "image": image}
            | dict(zip(EDGES, box, strict=True))
            | {"strength": strength}
            for code, prototype in prototypes.items()
            for rank, (image, box, strength) in enumerate(prototype.regions, start=1)
        ]
    _save_pictures(pictures, {row["image"] for row in _shown(regions)}, out / "pictures")
    return {
        "prototypes": regions,
        "codes": codes,
        SKIPPED: skipped(others, "the atlas is of the first PRISM with a quantised memory"),
    }


def report(tables: Tables, out: Path) -> list[Section]:
    regions, codes = tables["prototypes"], tables["codes"]
    caption = (
        "The codes recalled most often, a row each, in the pictures where a slot that recalled them won the largest "
        "share of a cell; the frame is the region around that cell."
    )
    drawn = save(figure(regions, out / "pictures"), out / "prototypes.png")
    return [
        Section(STUDY.title, _words(regions, codes), shown(codes, 3, ("note", "run", "pixels"))),
        Section("", caption, drawn),
    ]


def figure(regions: Rows, pictures: Path) -> Figure:
    """Four blocks, one a stage: a row a code, most used first."""
    sheet = Figure(figsize=(14, 11), layout="constrained")
    rows, blocks = _shown(regions), np.asarray(sheet.subfigures(2, 2, wspace=0.04, hspace=0.04))
    for block, stage in zip(blocks.flat, STAGES, strict=True):
        own = [row for row in rows if row["stage"] == stage]
        codes = column(own, "code")
        block.suptitle(f"stage {stage}", fontsize=11)
        if not codes:
            continue
        axes = block.subplots(len(codes), REGIONS, squeeze=False)
        for line, code in zip(axes, codes, strict=True):
            for axis in line:
                axis.set(xticks=[], yticks=[], frame_on=False)
            of_code = [row for row in own if row["code"] == code]
            line[0].set_ylabel(
                f"code {code}\n{of_code[0]['uses']} uses", fontsize=7, rotation=0, ha="right", va="center"
            )
            for axis, row in zip(line, of_code, strict=False):
                _draw(axis, np.asarray(Image.open(pictures / f"{row['image']}.png")), row)
    return sheet


def _draw(axis: Any, pixels: np.ndarray, row: Mapping[str, Any]) -> None:
    """The picture, darkened but for the region."""
    left, top, right, bottom = (row[edge] for edge in EDGES)
    shown = 0.35 * pixels
    shown[top:bottom, left:right] = pixels[top:bottom, left:right]
    axis.imshow(shown.astype(np.uint8), interpolation="nearest")
    frame = Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, color=COLOURS[4], linewidth=1.2)
    axis.add_patch(frame)
    axis.set_title(f"{row['strength']:.2f}", fontsize=6, pad=1.5)


def _shown(regions: Rows) -> list[Mapping[str, Any]]:
    """The regions of the most used codes of each stage, of those that have enough."""
    chosen = []
    for stage in STAGES:
        uses = {row["code"]: row["uses"] for row in regions if row["stage"] == stage and row["rank"] == ENOUGH}
        best = sorted(uses, key=lambda code, uses=uses: -uses[code])[:CODES]
        chosen += [row for code in best for row in regions if (row["stage"], row["code"]) == (stage, code)]
    return chosen


def _save_pictures(pictures: Tensor, wanted: set[int], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index in sorted(wanted):
        pixels = (pictures[index].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        Image.fromarray(pixels).save(folder / f"{index}.png")


def _words(regions: Rows, codes: Rows) -> str:
    said = [f"{codes[0]['pictures']} pictures were shown to {codes[0]['model']}."]
    for row in codes:
        own = [r for r in regions if r["stage"] == row["stage"]]
        areas = [(r["right"] - r["left"]) * (r["bottom"] - r["top"]) for r in own]
        covered = statistics.mean(areas) / row["pixels"] if areas else 0.0
        said.append(
            f"Stage {row['stage']} recalled {row['recalled']} of its {row['codes']} codes, the most frequent in "
            f"{row['largest share']:.1%} of all recalls; its regions cover {covered:.0%} of a picture "
            "on average."
        )
    return " ".join(said)


STUDY = Study(
    "prototypes",
    "What prototypes stand for",
    "which parts of pictures recall a code of the memory?",
    "",
    "a PRISM classifier with a quantised memory",
    "classifiers",
    measure,
    report,
)
