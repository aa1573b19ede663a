"""Scores of segmenters from counts over whole data sets, and what they cost.

Under occlusion patches are hidden, and what is asked for stays what it was: scores are of all pixels, and apart of
those that could be seen and those that could not.

B images, C classes.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from prism.data.label_maps import VOID, LabelledImages, Sides
from prism.data.preprocessing import normalise
from prism.data.sources import Labelled, name_of
from prism.metrics import complexity
from prism.metrics.iou import Counts, added, class_rows, count, scores
from prism.model.creation import Checkpoint
from prism.occlusion.hiding import Images, Occluded
from prism.occlusion.runner import Benchmark, Progress, Subject, check_finite, fingerprint, ready, refuse_mixtures
from prism.occlusion.settings import CLEAN, Job, Setting
from prism.reporting.figures import class_colours, image_grid, pixels, save
from prism.reporting.tables import Row, Tables
from prism.tasks.segmentation.network import Inference, SemanticFPN, load_segmenter
from prism.tasks.task import check_classes, with_files

COST_SIZE = (512, 512)  # where the paper counts


class Shown(NamedTuple):
    """An image as segmenters see it."""

    image: Tensor  # (3, H, W) in [0, 1]
    labels: Tensor  # (H, W): what is there, hidden or not
    hidden: Tensor  # (H, W) of bool


class OccludedImages(Occluded):
    """Labelled images under one setting, with what is hidden."""

    def __getitem__(self, index: int) -> Shown:
        image, labels, mask, _ = self.hidden(index)
        return Shown(image, labels, mask)


def count_pixels(
    subjects: Sequence[Subject],
    shown: OccludedImages,
    classes: int,
    batches: Sequence[Sequence[int]],
    workers: int,
    device: str,
) -> dict[tuple[str, str], Counts]:
    """One pass over batches of the images, every model on the same ones. Models give scores (B, C, H, W)."""
    nothing = Counts(torch.zeros(2, classes, classes, dtype=torch.long), torch.zeros(2, classes, dtype=torch.long))
    found = {(subject.name, subject.run): nothing for subject in subjects}
    ready((subject.model for subject in subjects), device)
    with torch.inference_mode():
        loader = DataLoader(shown, batch_sampler=batches, num_workers=workers, collate_fn=_by_size)  # pyright: ignore
        for places, groups in zip(batches, loader, strict=True):
            for members, (images, labels, hidden) in groups:
                names = [shown.name(places[member]) for member in members]
                for subject in subjects:
                    prediction = label_pixels(subject, images.to(device), classes, names).cpu()
                    key = subject.name, subject.run
                    found[key] = added(found[key], count(labels, prediction, classes, hidden))
    return found


def label_pixels(subject: Subject, images: Tensor, classes: int, names: Sequence[str]) -> Tensor:
    """The class of every pixel, (B, H, W)."""
    # one parameter tells the width of all: a float64 run is evaluated in float64
    dtype = next((p.dtype for p in subject.model.parameters()), images.dtype)
    found = subject.model(normalise(images, subject.mean, subject.std).to(dtype))
    if found.shape[1] != classes:
        raise ValueError(f"{subject.name} knows {found.shape[1]} classes, the data has {classes}")
    check_finite(subject.name, found, names.__getitem__)
    return found.argmax(1)


def in_training(
    network: SemanticFPN, samples: Labelled, fit: Sides | None, accelerator: Accelerator, batch: int, workers: int
) -> dict[str, float]:
    """mIoU, pixel accuracy and boundary IoU of whole images, over all processes."""
    subject = Subject(network.backbone.name, "", Inference(network, fit), network.mean, network.std)
    shown = OccludedImages(LabelledImages(samples), CLEAN)
    own = range(accelerator.process_index, len(shown), accelerator.num_processes)
    batches = [own[first : first + batch] for first in range(0, len(own), batch)]
    with accelerator.autocast():
        classes, device = len(samples.classes), str(accelerator.device)
        [found] = count_pixels([subject], shown, classes, batches, workers, device).values()
    everywhere = Counts(*(accelerator.reduce(part.to(accelerator.device)) for part in found))  # pyright: ignore
    return {name: value for name, value in scores(everywhere).items() if value is not None}


def subjects_of(checkpoints: Sequence[Checkpoint], classes: Sequence[str], **how: Any) -> list[Subject]:
    """The segmenters of these files, which must know these classes; `how` are arguments of Inference."""
    found = []
    for checkpoint, file in zip(checkpoints, with_files(checkpoints), strict=True):
        check_classes(file, checkpoint.classes or [], classes)
        inference = load_segmenter(file, **how)
        network = inference.network
        found.append(Subject(network.backbone.name, checkpoint.run, inference, network.mean, network.std))
    return found


def costs(model: nn.Module, size: tuple[int, int] = COST_SIZE) -> complexity.Costs:
    """Of the network itself: sizes, windows and mirrored images that it is used with are not its own."""
    return complexity.costs(model.network if isinstance(model, Inference) else model, size)


def _by_size(shown: Sequence[Shown]) -> list[tuple[list[int], Shown]]:
    """Images of one size together, (B, ...) each, so that none is padded or scaled for another's sake.

    With each group, which of the batch they are.
    """
    groups: dict[torch.Size, list[int]] = defaultdict(list)
    for member, one in enumerate(shown):
        groups[one.labels.shape].append(member)
    return [
        (members, Shown(*(torch.stack(parts) for parts in zip(*(shown[member] for member in members), strict=True))))
        for members in groups.values()
    ]


PAPER_SETTING = Setting("PatchMask", 0.3)
PAPER_SETTINGS = (CLEAN, PAPER_SETTING)
CURVE = (CLEAN, *(Setting("PatchMask", tenth / 10) for tenth in range(1, 8)))
MOST_NAMED = 24  # classes that the legend of the examples has room for


@dataclass(frozen=True)
class SegmentationBenchmark(Benchmark):
    """Rows are one for each model, run, setting, fill and mask seed."""

    images: Images
    settings: Sequence[Setting] = PAPER_SETTINGS
    classes: Sequence[str] = ()

    def run(self, subjects: Sequence[Subject], progress: Progress = lambda _: None) -> tuple[list[Row], list[Row]]:
        """Rows of scores, and rows of each class's IoU."""
        refuse_mixtures(subject[:3] for subject in subjects)
        found = [found for _, found in self.found(subjects, progress)]
        return [row for rows, _ in found for row in rows], [row for _, rows in found for row in rows]

    def describe(self, subjects: Sequence[Subject]) -> list[Any]:
        known = [[s.name, s.run, fingerprint(s.model), list(s.mean), list(s.std)] for s in subjects]
        return [*known, list(self.classes)]

    def measure(self, subjects: Sequence[Subject], job: Job) -> tuple[list[Row], list[Row]]:
        shown = OccludedImages(self.images, *job)
        own = self.own_batches(len(shown))
        counted = count_pixels(subjects, shown, len(self.classes), own, self.workers, self.device)
        rows, of_classes = [], []
        everyones = self.everyones(counted)
        for name, run in counted:
            counts = reduce(added, (theirs[name, run] for theirs in everyones))
            which = {"model": name, "run": run, **job.columns}
            rows.append(which | {"images": len(self.images)} | scores(counts))
            of_classes += [which | row for row in class_rows(counts, list(self.classes))]
        return rows, of_classes


def measure(benchmark: SegmentationBenchmark, subjects: Sequence[Subject], out: Path, progress: Progress) -> Tables:
    """Scores of every segmenter and setting, with what they cost; and each class's IoU."""
    rows, of_classes = benchmark.run(subjects, progress)
    if not benchmark.is_first:
        return {}
    progress("counting")
    spent = {s.name: dict(zip(("parameters", "MACs"), costs(s.model), strict=True)) for s in subjects}
    save(examples(benchmark, subjects), out / "examples.png", dpi=110)
    return {"segmentation": [row | spent[row["model"]] for row in rows], "classes": of_classes}


def examples(benchmark: SegmentationBenchmark, subjects: Sequence[Subject]) -> Figure:
    """Two images, clean and under the strongest setting: as shown, the truth, and each model's answer."""
    places = [index * (len(benchmark.images) // 2) for index in range(min(2, len(benchmark.images)))]
    settings = dict.fromkeys((benchmark.settings[0], benchmark.settings[-1]))
    colours = class_colours(len(benchmark.classes))
    several = len({s.name for s in subjects}) < len(subjects)
    titles = ["truth", *(f"{s.name}\n{s.run}" if several else s.name for s in subjects)]
    ready((subject.model for subject in subjects), benchmark.device)  # rows that were all kept moved none
    lines, named = [], set()
    for index in places:
        for setting in settings:
            shown = OccludedImages(benchmark.images, setting, benchmark.fills[0], benchmark.seeds[0])[index]
            with torch.inference_mode():
                images = shown.image[None].to(benchmark.device)
                names = [name_of(benchmark.images, index)]
                answers = [label_pixels(s, images, len(benchmark.classes), names)[0].cpu() for s in subjects]
            maps = [shown.labels, *answers]
            drawn = [(colours[labels.numpy()], title) for labels, title in zip(maps, titles, strict=True)]
            lines.append([(pixels(shown.image), setting.name), *drawn])
            named |= {int(n) for labels in maps for n in labels.unique() if n != VOID}
    figure = image_grid(lines)
    patches = [Patch(color=to_hex(tuple(colours[n])), label=benchmark.classes[n]) for n in sorted(named)[:MOST_NAMED]]
    figure.legend(handles=patches, loc="outside lower left", ncols=1 + len(titles), frameon=False, fontsize=8)
    return figure
