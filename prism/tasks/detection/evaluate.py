"""COCO's numbers of detectors, and what they cost.

Under occlusion a block lies over each of two objects of an image (M30, M50, ...).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.models.detection import MaskRCNN

from prism.data.annotations import Annotated
from prism.data.images import unit_pixels
from prism.data.sources import OwnImages
from prism.metrics import complexity
from prism.metrics.average_precision import Result, Truth, as_results, by_subset, categories_of, flagged, instances
from prism.metrics.complexity import Costs, parameters
from prism.occlusion.runner import Benchmark, Progress, fingerprint, ready, refuse_mixtures
from prism.occlusion.settings import CLEAN, Job, Setting
from prism.reporting.figures import image_grid, pixels, save
from prism.reporting.tables import Row, Tables
from prism.tasks.detection.covering import Covered, CoveredImages, summary, without_pixels, write_occluded
from prism.tasks.detection.network import Design, DetectionNetwork, build_network, find
from prism.tasks.detection.report import subset_table
from prism.tasks.task import ranks_of


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
    network: DetectionNetwork, images: Annotated, accelerator: Accelerator, batch: int, workers: int
) -> list[Result]:
    """What the network finds in all images, as COCO's result files have it; the same list in every process."""
    own = _Own(images, unit_pixels, ranks_of(accelerator))
    # with this collation a batch stays a list: images differ in size
    batches: Iterable[list[tuple[Tensor, int, str]]] = DataLoader(own, batch, num_workers=workers, collate_fn=list)
    results = []
    for triples in batches:
        with accelerator.autocast():
            shown, names = [image.to(accelerator.device) for image, *_ in triples], [name for *_, name in triples]
            found = find(network, shown, names)
        for one, (_, image_id, _) in zip(found, triples, strict=True):
            results += as_results(one, image_id, images.categories)
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


class _Own(OwnImages):
    """Images of many sizes, each with its id and its name; masks, which are large, stay with the reader."""

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        return image, target["image_id"], self.name(index)


SHARES = (0.1, 0.3, 0.5, 0.7)
SHOWN = 3  # images of the examples


def settings_of(shares: Sequence[float]) -> tuple[Setting, ...]:
    """M30 for 0.3, and so on; 0 is the clean image."""
    for share in shares:
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie between 0 and 1, got {share}")
    return tuple(Setting("M", round(100 * share, 10)) if share else CLEAN for share in shares)


PAPER_SETTINGS = settings_of((0, *SHARES))


@dataclass(frozen=True)
class DetectionBenchmark(Benchmark):
    """`run` measures the subjects: a row for each of them, setting, fill, mask seed and subset of the objects."""

    images: Annotated
    settings: Sequence[Setting] = PAPER_SETTINGS
    visible: bool = False

    def run(
        self, subjects: Sequence[DetectorSubject], progress: Progress = lambda _: None
    ) -> tuple[list[Row], list[Row]]:
        """Rows of scores, and rows of what was hidden."""
        refuse_mixtures((f"{s.head} on {s.backbone}", s.run, s.network) for s in subjects)
        found = [found for _, found in self.found(subjects, progress)]
        return [row for rows, _ in found for row in rows], [row for _, rows in found for row in rows]

    def describe(self, subjects: Sequence[DetectorSubject]) -> list[Any]:
        known = [[*s.key.values(), fingerprint(s.network), list(s.categories)] for s in subjects]
        return [*known, self.visible]

    def measure(self, subjects: Sequence[DetectorSubject], job: Job) -> tuple[list[Row], list[Row]]:
        shown = self.covered(job)
        seen: list[Covered] = []  # without their pixels
        results: list[list[Result]] = [[] for _ in subjects]
        ready((subject.network for subject in subjects), self.device)
        own = self.own_batches(len(shown))
        with torch.inference_mode():
            for batch in DataLoader(shown, batch_sampler=own, num_workers=self.workers, collate_fn=list):
                images = [one.image.to(self.device) for one in batch]
                names = [one.entry["file_name"] for one in batch]
                for subject, kept in zip(subjects, results, strict=True):
                    for one, found in zip(batch, find(subject.network, images, names), strict=True):
                        kept += as_results(found, one.entry["id"], subject.categories)
                seen += [without_pixels(one) for one in batch]
        everyones = self.everyones((seen, results))
        every = [one for theirs, _ in everyones for one in theirs]
        truth: Truth = {
            "images": [one.entry for one in every],
            "annotations": [annotation for one in every for annotation in one.annotations],
            "categories": categories_of(self.images),
        }
        masked, brushed = ({id for one in every for id in getattr(one, name)} for name in ("masked", "brushed"))
        subsets = subsets_of(truth, masked, brushed)
        which = job.columns | {"mask seed": job.seed}  # which says of clean images too what is about to be hidden
        rows = []
        for place, subject in enumerate(subjects):
            found = [result for _, theirs in everyones for result in theirs[place]]
            rows += [subject.key | which | row for row in by_subset(truth, found, subsets, subject.finds_masks)]
        return rows, [which | summary(every)]

    def covered(self, job: Job) -> CoveredImages:
        setting, filling, seed = job
        if setting.kind not in (CLEAN.kind, "M"):
            raise ValueError(f"detection hides parts of objects, such as M30; got {setting.name}")
        return CoveredImages(self.images, setting.hidden_share, filling, seed, self.visible)

    def write_folders(self, out: Path, progress: Progress) -> list[Row]:
        """A COCO folder for each setting but the clean one, fill and mask seed; rows of what is hidden there."""
        rows = []
        for job in self.jobs():
            if job.setting != CLEAN:
                progress(f"writing {job.name}")
                rows.append({"folder": job.name, **write_occluded(self.covered(job), out / job.name)})
        return rows


def measure(
    benchmark: DetectionBenchmark, subjects: Sequence[DetectorSubject], out: Path, progress: Progress
) -> Tables:
    """COCO's numbers of every detector, setting and subset of the objects; and what was hidden."""
    rows, blocks = benchmark.run(subjects, progress)
    if not benchmark.is_first:
        return {}
    sizes = {(s.backbone, s.head): parameters(s.network) for s in subjects}
    truth = "visible part" if benchmark.visible else "as annotated"
    rows = [{**row, "parameters": sizes[row["backbone"], row["head"]], "truth": truth} for row in rows]
    save(examples(benchmark), out / "examples.png", dpi=110)
    left_out = len(getattr(benchmark.images, "broken", ()))
    return {
        "detection": rows,
        "blocks": [{**row, "left out": left_out} for row in blocks],
        "subsets": subset_table(rows, benchmark.fills[0]),
    }


def examples(benchmark: DetectionBenchmark) -> Figure:
    """Images of the data, a row each, in every setting."""
    count = min(SHOWN, len(benchmark.images))
    jobs = [Job(setting, benchmark.fills[0], benchmark.seeds[0]) for setting in benchmark.settings]
    shown = [(benchmark.covered(job), job.setting.name) for job in jobs]
    return image_grid(
        [
            [(pixels(covered[line * len(covered) // count].image), "" if line else name) for covered, name in shown]
            for line in range(count)
        ]
    )
