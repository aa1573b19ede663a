"""How well does a detector stand occlusion? In every picture a block lies over each of two objects (M30, M50, ...).

Every detector sees the same pixels: what is hidden depends on the picture's id and the mask seed, and on nothing else.
Which objects are hidden does not depend on how much of them is. What is asked for is the object as it was annotated
(amodal), or the part of it that is left to see.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2.functional import pil_to_tensor

from prism.data.annotations import Annotated, encode
from prism.metrics.average_precision import (
    NUMBERS,
    Result,
    Truth,
    as_results,
    by_subset,
    categories_of,
    flagged,
    instances,
)
from prism.metrics.complexity import parameters
from prism.occlusion.benchmark import (
    IMAGENET_MEAN,
    Benchmark,
    Rows,
    digest,
    fingerprint,
    of_all,
    own_batches,
    refuse_mixtures,
    spread,
)
from prism.occlusion.fills import Fill, fill
from prism.occlusion.masks import instance_mask, mask_generator
from prism.reporting import tables
from prism.reporting.figures import COLOURS
from prism.reporting.pages import Section, page
from prism.reporting.tables import with_deviation

SHARES = (0.0, 0.1, 0.3, 0.5, 0.7)  # 0 is the clean picture
HIDDEN = 2  # objects of a picture
SMALLEST = 10  # pixels: of fewer, 10 % would be none
SHOWN = 3  # pictures of the examples

# Table 2(a) of the paper, on COCO: parameters of RetinaNet in millions and its AP; those of Mask R-CNN, box and mask AP
RETINANET = ("M", "C", "M30", "M50")
MASK_RCNN = ("M", "C b", "C m", "M30 b", "M30 m", "M50 b", "M50 m")
LETTERS = {"RetinaNet": {"box AP": ""}, "Mask R-CNN": {"box AP": " b", "mask AP": " m"}}
PUBLISHED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "PVTv2-B1": ((23.8, 41.2, 32.8, 27.6), (33.7, 41.8, 38.8, 34.1, 31.1, 28.7, 25.9)),
    "PaCa-Ti": ((), (32.0, 43.3, 39.6, 37.5, 34.7, 31.8, 28.7)),
    "DaViT-T": ((38.5, 44.0, 36.9, 31.5), (47.8, 45.0, 41.1, 38.6, 35.3, 33.0, 29.8)),
    "PRISM": ((20.5, 43.6, 38.8, 34.2), (31.4, 44.5, 40.8, 40.6, 36.9, 37.2, 33.7)),
}
NOTE = (
    "AP in per cent, averaged over IoU 0.50 to 0.95: C clean, M30 and M50 with 30 and 50 % of two objects a picture "
    "hidden, b of boxes, m of masks; M is millions of parameters. With several training runs or mask seeds, mean ± "
    "deviation over them. Rows marked as the paper's are its published values on COCO, for reference: they were not "
    "measured here."
)


class Cover(NamedTuple):
    """What blocks hide of a picture and of the objects they were laid over."""

    hidden: Tensor  # (H, W) of bool
    chosen: list[int]  # the objects, at most two
    own: list[int]  # pixels of each that its own block hides
    besides: list[int]  # further pixels of each that the other block hides
    lost: list[int]  # pixels of every object, chosen or not, that any block hides


def cover(masks: Tensor, eligible: Tensor, share: float, generator: torch.Generator) -> Cover:
    """Blocks over two random objects of those eligible, each hiding exactly round(share * area) of its own object.

    `masks` is (n, H, W) of bool, `eligible` (n,). Objects of fewer than ten pixels are too small to be hidden.
    """
    large = torch.tensor([int(mask.sum()) >= SMALLEST for mask in masks], dtype=torch.bool)
    candidates = (eligible & large).nonzero().squeeze(1)
    # drawn before the blocks, so that another share hides the same objects
    order = torch.randperm(len(candidates), generator=generator)[:HIDDEN]
    chosen = candidates[order].tolist()
    blocks = [instance_mask(masks[place], share, generator) for place in chosen]
    hidden = torch.zeros(masks.shape[1:], dtype=torch.bool)
    for block in blocks:
        hidden |= block
    own = [int((masks[place] & block).sum()) for place, block in zip(chosen, blocks, strict=True)]
    lost = [int((mask & hidden).sum()) for mask in masks]
    return Cover(hidden, chosen, own, [lost[place] - alone for place, alone in zip(chosen, own, strict=True)], lost)


class Covered(NamedTuple):
    """A picture as detectors see it."""

    picture: Tensor  # (3, H, W) in [0, 1], in steps of 1/255: a PNG of it holds the same
    image: dict[str, Any]  # COCO's entry
    annotations: list[dict[str, Any]]  # what is asked for
    masked: list[int]  # ids of the annotations that blocks lie over
    areas: list[int]  # pixels of each of these before
    brushed: dict[int, int]  # of the other annotations that a block hides a part of: pixels hidden
    cover: Cover


class CoveredPictures(Dataset[Covered]):
    """Annotated pictures with a share of two objects hidden; with share 0 nothing is, but the two are chosen.

    With `visible` the truth is what is left to see; an object of which nothing is left is not asked for.
    """

    def __init__(
        self,
        pictures: Annotated,
        share: float,
        filling: Fill = "mean",
        seed: int = 0,
        visible: bool = False,
        mean: Sequence[float] = IMAGENET_MEAN,
    ):
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie between 0 and 1, got {share}")
        self.pictures, self.share, self.seed, self.visible = pictures, share, seed, visible
        self.filling: Fill = filling
        self.mean = torch.tensor(mean)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Covered:
        image, annotations = self.pictures.image(index), self.pictures.annotations(index)
        picture, target = self.pictures[index]
        masks = target["masks"].bool()
        generator = mask_generator(image["id"], self.seed)
        found = cover(masks, ~target["iscrowd"], self.share, generator)
        pixels = self._filled(index, pil_to_tensor(picture) / 255, found.hidden, generator)
        masked = [annotations[place]["id"] for place in found.chosen]
        areas = [int(masks[place].sum()) for place in found.chosen]
        pairs = zip(annotations, found.lost, strict=True)
        brushed = {a["id"]: lost for a, lost in pairs if lost and a["id"] not in masked}
        if self.visible:
            annotations = list(_left(annotations, masks & ~found.hidden))
        return Covered(pixels, image, annotations, masked, areas, brushed, found)

    def _filled(self, index: int, pixels: Tensor, hidden: Tensor, generator: torch.Generator) -> Tensor:
        if not self.share:
            return pixels
        other = pixels
        if self.filling == "texture":
            step = 1 + int(torch.randint(max(1, len(self) - 1), (), generator=generator))
            other = pil_to_tensor(self.pictures[(index + step) % len(self)][0]) / 255
        painted = fill(pixels, hidden, self.filling, self.mean, other, generator)
        return (painted * 255).round() / 255


class DetectorSubject(NamedTuple):
    """A detector under test: pictures (3, H, W) in [0, 1] -> torchvision's dicts.

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


class Pass(NamedTuple):
    """One pass over the pictures of a setting."""

    truth: Truth
    masked: set[int]
    brushed: set[int]
    results: list[list[Result]]  # of each subject
    blocks: dict[str, Any]  # what was hidden, as a row


class Look(NamedTuple):
    """What a process saw, and what each subject found in it."""

    covered: list[Covered]  # without their pixels
    results: list[list[Result]]


@dataclass(frozen=True)
class DetectionBenchmark(Benchmark):
    """`run` measures the subjects: a row for each of them, setting, fill, mask seed and subset of the objects."""

    pictures: Annotated
    shares: Sequence[float] = SHARES
    visible: bool = False

    def run(self, subjects: Sequence[DetectorSubject], progress: Callable[[str], None] = lambda _: None) -> Rows:
        """Rows of scores, and rows of what was hidden."""
        if not len(self.pictures):
            raise ValueError("the data set is empty")
        refuse_mixtures([(f"{s.head} on {s.backbone}", s.run, s.network) for s in subjects])
        about = self._about(subjects) if self.folder else {}
        measures = {
            (setting_name(share), filling, seed): partial(self._measured, subjects, share, filling, seed)
            for share, filling, seed in self.jobs()
        }
        return self.collected(measures, about, progress)

    def _measured(self, subjects: Sequence[DetectorSubject], share: float, filling: Fill, seed: int) -> Rows:
        """Of one setting: rows of scores, and what was hidden."""
        view = CoveredPictures(self.pictures, share, filling, seed, self.visible)
        found = look(subjects, view, self.batch, self.workers, self.device, self.processes)
        which = {"setting": setting_name(share), "fill": filling if share else "", "mask seed": seed}
        every = instances(found.truth)
        masked, brushed = found.masked & every, found.brushed & every
        subsets = {"all": every, "masked": masked, "brushed": brushed, "untouched": every - masked - brushed}
        subsets |= {"occluded": flagged(found.truth)}
        rows = [
            subject.key | which | row
            for subject, results in zip(subjects, found.results, strict=True)
            for row in by_subset(found.truth, results, subsets, subject.finds_masks)
        ]
        return rows, [which | found.blocks]

    def _about(self, subjects: Sequence[DetectorSubject]) -> dict[str, Any]:
        """What kept rows must be of."""
        shown = (pil_to_tensor(self.pictures[index][0]) for index in spread(self.pictures))
        return {
            "pictures": [len(self.pictures), digest(shown), self.pictures.fingerprint()],
            "visible": self.visible,
            "subjects": [[*s.key.values(), fingerprint(s.network), list(s.categories)] for s in subjects],
        }

    def jobs(self) -> Iterator[tuple[float, Fill, int]]:
        """Neither fill nor seed changes a clean picture; but the seed says which objects are about to be hidden."""
        for share in self.shares:
            for filling in self.fills if share else self.fills[:1]:
                for seed in self.seeds if share else self.seeds[:1]:
                    yield share, filling, seed


def look(
    subjects: Sequence[DetectorSubject],
    view: CoveredPictures,
    batch: int,
    workers: int,
    device: str,
    processes: PartialState | None = None,
) -> Pass:
    """Show all pictures to all subjects; processes share the batches."""
    for subject in subjects:
        subject.network.eval().to(device)  # not in inference mode: weights moved there could never be trained again
    own = Look([], [[] for _ in subjects])
    batches = own_batches(len(view), batch, processes)
    with torch.inference_mode():
        for shown in DataLoader(view, batch_sampler=batches, num_workers=workers, collate_fn=list):
            pictures = [one.picture.to(device) for one in shown]
            for subject, kept in zip(subjects, own.results, strict=True):
                for one, found in zip(shown, subject.network(pictures), strict=True):
                    kept += as_results(found, one.image["id"], subject.categories)
            own.covered.extend(_without_pixels(one) for one in shown)
    everyones = of_all(own, processes)
    covered = [one for theirs in everyones for one in theirs.covered]
    truth: Truth = {
        "images": [one.image for one in covered],
        "annotations": [annotation for one in covered for annotation in one.annotations],
        "categories": categories_of(view.pictures),
    }
    masked = {id for one in covered for id in one.masked}
    brushed = {id for one in covered for id in one.brushed}
    results = [
        [result for part in parts for result in part] for parts in zip(*(t.results for t in everyones), strict=True)
    ]
    return Pass(truth, masked, brushed, results, _summary(covered))


def write_occluded(view: CoveredPictures, out: Path) -> dict[str, Any]:
    """The covered pictures as a COCO folder for other frameworks: images/*.png and instances.json; what was hidden.

    A masked annotation has `masked` 1. Every one has the pixels of it that its own block hides, and those that a block
    laid over another object does besides.
    """
    (out / "images").mkdir(parents=True, exist_ok=True)
    truth: Truth = {
        "info": {
            "description": f"{HIDDEN} objects a picture, {view.share:.0%} of each hidden; "
            f"fill {view.filling}, mask seed {view.seed}, truth {'visible part' if view.visible else 'as annotated'}"
        },
        "images": [],
        "annotations": [],
        "categories": categories_of(view.pictures),
    }
    covers = []
    for index in range(len(view)):
        one = view[index]
        name = f"{one.image['id']:012d}.png"
        Image.fromarray(_pixels(one.picture)).save(out / "images" / name)
        truth["images"].append({**one.image, "file_name": name})
        hidden = dict(zip(one.masked, zip(one.cover.own, one.cover.besides, strict=True), strict=True))
        for annotation in one.annotations:
            own, besides = hidden.get(annotation["id"], (0, one.brushed.get(annotation["id"], 0)))
            flags = {"masked": int(annotation["id"] in hidden), "hidden": own, "hidden_besides": besides}
            truth["annotations"].append(annotation | flags)
        covers.append(_without_pixels(one))
    (out / "instances.json").write_text(json.dumps(truth))
    return _summary(covers)


def write_folders(
    benchmark: DetectionBenchmark, out: Path, progress: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """A COCO folder for each setting but the clean one, fill and mask seed; rows of what is hidden there."""
    rows = []
    for share, filling, seed in benchmark.jobs():
        if share:
            name = f"{setting_name(share)}-{filling}-{seed}"
            progress(f"writing {name}")
            view = CoveredPictures(benchmark.pictures, share, filling, seed, benchmark.visible)
            rows.append({"folder": name, **write_occluded(view, out / name)})
    return rows


def write(
    benchmark: DetectionBenchmark,
    subjects: Sequence[DetectorSubject],
    out: Path,
    command: str,
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Measure; write CSVs, the paper's table, curves.png, examples.png and report.html into `out`; return the table.

    All processes but the first have no more to do than to measure, and return nothing.
    """
    rows, blocks = benchmark.run(subjects, progress)
    if not benchmark.is_first:
        return []
    headline = benchmark.fills[0]
    truth = "the part that is left to see" if benchmark.visible else "the object as it was annotated"
    tables.write(rows, out / "detection", f"COCO's numbers from 0 to 1, by subset of objects.\n\n`{command}`")
    tables.write(blocks, out / "blocks", f"What was hidden.\n\n`{command}`")
    sizes = {(s.backbone, s.head): parameters(s.network) for s in subjects}
    main = paper_table(rows, sizes, headline)
    tables.write(main, out / "table", f"{NOTE}\n\nTruth: {truth}; fill: {headline}.\n\n`{command}`")
    parts = subset_table(rows, headline)
    tables.write(parts, out / "subsets", f"AP in per cent by subset of objects.\n\n`{command}`")
    curves(rows, headline).savefig(out / "curves.png", dpi=130)
    examples(benchmark).savefig(out / "examples.png", dpi=110)
    heads = [(head, of_head(main, head)) for head in LETTERS if any(subject.head == head for subject in subjects)]
    note = f"{NOTE} Truth: {truth}; hidden pixels: {headline}."
    sections: list[tuple[str, str, tables.Rows | Path]] = [
        *((head, "" if place else note, lines) for place, (head, lines) in enumerate(heads)),
        ("Curves", "Against the share hidden; bands are deviations over runs and mask seeds.", out / "curves.png"),
        (
            "Which objects",
            "AP in per cent of all objects, of the masked ones (clean: those that the first mask seed is about to "
            "hide), of those brushed by a block over another one, of the untouched, and of those flagged as occluded "
            "in the data; and the share of each found with mask IoU 0.75.",
            parts,
        ),
        ("What the detectors saw", "Pictures of the data in every setting.", out / "examples.png"),
        (
            "What was hidden",
            "Pictures by how many objects a block could be laid over; shares of these objects' pixels.",
            blocks,
        ),
        ("All rows", f"COCO's numbers from 0 to 1. Made by: {command}", rows),
    ]
    (out / "report.html").write_text(page("Detection under occlusion", [Section(*part) for part in sections]))
    return main


def paper_table(rows: tables.Rows, sizes: Mapping[tuple[str, str], int], filling: str) -> list[dict[str, Any]]:
    """A row a backbone in the layout of the paper's Table 2(a), then the paper's own rows."""
    scores = _scores(rows, filling, "all")
    ours = []
    for name in dict.fromkeys(row["backbone"] for row in rows):
        line = {"model": name, **{f"RetinaNet {column}": "" for column in RETINANET}}
        line |= {f"Mask R-CNN {column}": "" for column in MASK_RCNN}
        for (backbone, head), size in sizes.items():
            if backbone == name:
                line[f"{head} M"] = f"{size / 1e6:.1f}"
        for (backbone, head, setting, number), values in scores.items():
            letter = LETTERS.get(head, {}).get(number)
            column = f"{head} {'C' if setting == 'clean' else setting}{letter}"
            if backbone == name and letter is not None and column in line:
                line[column] = with_deviation(values)
        ours.append(line)
    theirs = [
        {"model": f"{name} (paper, COCO)"}
        | {f"RetinaNet {c}": f"{one[place]:.1f}" if one else "" for place, c in enumerate(RETINANET)}
        | {f"Mask R-CNN {c}": f"{two[place]:.1f}" if two else "" for place, c in enumerate(MASK_RCNN)}
        for name, (one, two) in PUBLISHED.items()
    ]
    return [*ours, *theirs]


def of_head(lines: tables.Rows, head: str) -> list[dict[str, Any]]:
    """The columns of one head, and the models that have it."""
    cut = [
        {"model": line["model"]} | {name.removeprefix(f"{head} "): cell for name, cell in line.items() if head in name}
        for line in lines
    ]
    return [line for line in cut if line["M"]]


def subset_table(rows: tables.Rows, filling: str) -> list[dict[str, Any]]:
    """A row for each detector, subset of the objects and score, a column for each setting."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    found = {subset: _scores(rows, filling, subset) for subset in dict.fromkeys(row["subset"] for row in rows)}
    lines = []
    for backbone, head in dict.fromkeys((row["backbone"], row["head"]) for row in rows):
        for subset, scores in found.items():
            for number in ("box AP", "mask AP", "mask recall75"):
                cells = {s: with_deviation(scores.get((backbone, head, s, number), [])) for s in settings}
                if any(cells.values()):
                    lines.append({"detector": f"{backbone}, {head}", "objects": subset, "score": number, **cells})
    return lines


def curves(rows: tables.Rows, filling: str) -> Figure:
    """AP against the share that is hidden: of all objects, and of the masked ones alone. Masks are dashed."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    detectors = list(dict.fromkeys((row["backbone"], row["head"]) for row in rows))
    for axis, subset in zip(axes, ("all", "masked"), strict=True):
        found = _scores(rows, filling, subset)
        for number, (backbone, head) in enumerate(detectors):
            for score, line in (("box AP", "-"), ("mask AP", "--")):
                own = {
                    key[2]: values for key, values in found.items() if key[:2] == (backbone, head) and key[3] == score
                }
                points = sorted((share_of(setting), values) for setting, values in own.items())
                at = [share for share, _ in points]
                mean = np.array([statistics.mean(values) for _, values in points])
                spread = np.array([statistics.pstdev(values) for _, values in points])
                colour, marker = COLOURS[number % len(COLOURS)], "osD^vP"[number % 6]
                label = f"{backbone}, {head}, {score.split()[0]}" if points else None
                axis.plot(at, mean, color=colour, marker=marker, linestyle=line, label=label)
                axis.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        axis.set(title=f"{subset} objects", xlabel="share of two objects a picture hidden")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel=f"AP, % ({filling} fill)", ylim=(0, None))
    if axes[0].get_legend_handles_labels()[0]:  # without any object there is no AP
        axes[0].legend(frameon=False, fontsize=8)
    return figure


def examples(benchmark: DetectionBenchmark) -> Figure:
    """Pictures of the data, a row each, in every setting."""
    count = min(SHOWN, len(benchmark.pictures))
    figure = Figure(figsize=(2.0 * len(benchmark.shares), 2.1 * count), layout="constrained")
    axes = figure.subplots(count, len(benchmark.shares), squeeze=False)
    for line in range(count):
        for axis, share in zip(axes[line], benchmark.shares, strict=True):
            view = CoveredPictures(benchmark.pictures, share, benchmark.fills[0], benchmark.seeds[0])
            axis.imshow(_pixels(view[line * len(view) // count].picture), interpolation="nearest")
            axis.set_title("" if line else setting_name(share), fontsize=8)
            axis.set_axis_off()
    return figure


def setting_name(share: float) -> str:
    return f"M{100 * share:g}" if share else "clean"


def share_of(setting: str) -> float:
    """That `setting_name` was given."""
    return 0.0 if setting == "clean" else float(setting.removeprefix("M")) / 100


def _left(annotations: Sequence[dict[str, Any]], masks: Tensor) -> Iterator[dict[str, Any]]:
    """The annotations of what is left to see of their objects."""
    for annotation, mask in zip(annotations, masks, strict=True):
        rows, columns = mask.any(1).nonzero().squeeze(1), mask.any(0).nonzero().squeeze(1)
        if not len(rows):
            continue
        left, top = int(columns[0]), int(rows[0])
        box = [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top]
        yield {**annotation, "bbox": box, "area": int(mask.sum()), "segmentation": encode(mask.numpy())}


def _without_pixels(one: Covered) -> Covered:
    """What is counted at the end; the pixels of a whole data set would not fit into memory."""
    nothing = torch.empty(0)
    return one._replace(picture=nothing, cover=one.cover._replace(hidden=nothing))


def _summary(covers: Sequence[Covered]) -> dict[str, Any]:
    """How many pictures had two objects to hide, one or none; and which share of the objects' pixels went."""
    counts = [len(one.masked) for one in covers]
    whole = sum(area for one in covers for area in one.areas)
    own, besides = (sum(n for one in covers for n in getattr(one.cover, name)) for name in ("own", "besides"))
    return {
        "pictures": len(covers),
        "two objects": sum(count == HIDDEN for count in counts),
        "one object": counts.count(1),
        "no object": counts.count(0),
        "objects": sum(counts),
        "hidden by own block": own / whole if whole else None,
        "by the other besides": besides / whole if whole else None,
    }


def _scores(rows: tables.Rows, filling: str, subset: str) -> dict[tuple[str, str, str, str], list[float]]:
    """In per cent, by backbone, head, setting and number."""
    numbers = [f"{kind} {name}" for kind in ("box", "mask") for name in NUMBERS] + ["mask recall75"]
    found: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["subset"] == subset and row["fill"] in (filling, ""):
            for number in numbers:
                if row[number] is not None:
                    found[row["backbone"], row["head"], row["setting"], number].append(100 * row[number])
    return dict(found)


def _pixels(picture: Tensor) -> np.ndarray:
    return (picture * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
