"""Beyond the paper: which parts of images recall each code of the memory?"""

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.patches import Rectangle
from PIL import Image

from prism.analysis.drawing import spotlit
from prism.analysis.prototypes import atlas, usage
from prism.data.preprocessing import normalise
from prism.reporting.figures import pixels
from prism.studies import study as s

IMAGES, QUICK_IMAGES = 500, 100
REGIONS = 6  # per code
CODES = 5  # per stage in the figure
ENOUGH = 3  # regions that a code in the figure has at least
EDGES = ("left", "top", "right", "bottom")
DARK = 0.35


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Every code's uses and regions, and the stages' use of their codebooks; writes the images that will be shown."""
    found = inputs.classifiers()
    subject = next((subject for subject in found.prisms if subject.model.memory == "vq"), None)
    if subject is None:
        raise s.Inapplicable("only a PRISM with a quantised memory has prototypes, and there is none")
    count = min(len(found.images), QUICK_IMAGES if inputs.quick else IMAGES)
    progress(f"searching {count} images")
    images = torch.stack([found.images[index][0] for index in range(count)])
    network = inputs.ready(subject)
    which = {"model": subject.name, "run": subject.run}
    size = {"images": count, "pixels": images.shape[-2] * images.shape[-1]}
    stages = atlas(network, normalise(images.to(inputs.device), subject.mean, subject.std), REGIONS)
    codes, regions = [], []
    for number, (stage, prototypes) in enumerate(zip(network.stages, stages, strict=True), start=1):
        known = {"stage": number, "codes": len(stage.get_buffer("step.memory.codebook.codes"))}
        codes.append(which | known | usage(prototypes) | size)
        regions += [
            {"stage": number, "code": code, "uses": prototype.uses, "rank": rank, "image": image}
            | dict(zip(EDGES, box, strict=True))
            | {"strength": strength}
            for code, prototype in prototypes.items()
            for rank, (image, box, strength) in enumerate(prototype.regions, start=1)
        ]
    folder = out / "pictures"
    folder.mkdir(exist_ok=True)
    for index in {row["image"] for row in _shown(regions)}:
        Image.fromarray(pixels(images[index])).save(folder / f"{index}.png")
    left_out = s.skipped(found.all_but(subject), "the atlas shows the first PRISM with a quantised memory")
    return {"prototypes": regions, "codes": codes, s.SKIPPED: left_out}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    regions, codes = tables["prototypes"], tables["codes"]
    caption = (
        "The codes recalled most often, one per row, in the images where a slot that recalled them won the largest "
        "share of a cell; the frame is the region around that cell."
    )
    table, drawn = s.shown(codes, 3, ("note", "run", "pixels")), figure(regions, out / "pictures")
    return s.told(_words(regions, codes), table, caption, drawn, out / "prototypes.png")


def figure(regions: s.Rows, images: s.Path) -> s.Figure:
    """One block per stage: one row per code, most used first."""
    rows, stages = _shown(regions), s.column(regions, "stage")
    down = -(-len(stages) // 2)
    sheet = s.Figure(figsize=(14, 5.5 * down), layout="constrained")
    blocks = np.asarray(sheet.subfigures(down, 2, squeeze=False, wspace=0.04, hspace=0.04))
    for block, stage in zip(blocks.flat, stages, strict=False):
        own = s.where(rows, stage=stage)
        codes = s.column(own, "code")
        block.suptitle(f"stage {stage}", fontsize=11)
        if not codes:
            continue
        for line, code in zip(block.subplots(len(codes), REGIONS, squeeze=False), codes, strict=True):
            for axis in line:
                axis.set(xticks=[], yticks=[], frame_on=False)
            of_code = s.where(own, code=code)
            label = f"code {code}\n{of_code[0]['uses']} uses"
            line[0].set_ylabel(label, fontsize=7, rotation=0, ha="right", va="center")
            for axis, row in zip(line, of_code, strict=False):
                _draw(axis, np.asarray(Image.open(images / f"{row['image']}.png")), row)
    return sheet


def _draw(axis: Any, pixels: np.ndarray, row: Mapping[str, Any]) -> None:
    left, top, right, bottom = box = [row[edge] for edge in EDGES]
    axis.imshow(spotlit(pixels, box, DARK), interpolation="nearest")
    look: dict[str, Any] = dict(fill=False, color=s.COLOURS[4], linewidth=1.2)
    axis.add_patch(Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, **look))
    axis.set_title(f"{row['strength']:.2f}", fontsize=6, pad=1.5)


def _shown(regions: s.Rows) -> list[Mapping[str, Any]]:
    """The regions of the most used codes of each stage that have enough of them."""
    chosen = []
    for stage in s.column(regions, "stage"):
        own = s.where(regions, stage=stage)
        uses = {row["code"]: row["uses"] for row in s.where(own, rank=ENOUGH)}
        best = sorted(uses, key=lambda code, uses=uses: -uses[code])[:CODES]
        chosen += [row for code in best for row in s.where(own, code=code)]
    return chosen


def _words(regions: s.Rows, codes: s.Rows) -> str:
    said = [f"{codes[0]['model']} was given {codes[0]['images']} images."]
    for row in codes:
        own = s.where(regions, stage=row["stage"])
        areas = [(r["right"] - r["left"]) * (r["bottom"] - r["top"]) for r in own]
        covered = statistics.mean(areas) / row["pixels"] if areas else 0.0
        said.append(
            f"Stage {row['stage']} recalled {row['recalled']} of its {row['codes']} codes, the most frequent in "
            f"{row['largest share']:.1%} of all recalls; its regions cover {covered:.0%} of an image on average."
        )
    return " ".join(said)
