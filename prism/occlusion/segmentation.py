"""How well does a segmenter stand occlusion? Patches are hidden, and what is asked for stays what it was.

Every model sees the same pixels, in any batch and on any number of workers. Scores are of all pixels, and apart of
those that could be seen and those that could not.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from accelerate import PartialState
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from prism.data.segmentation import VOID
from prism.data.sources import original_index
from prism.metrics.complexity import PAPER_STEPS, macs_by_module, parameters, step_cost
from prism.metrics.iou import Counts, added, class_rows, count, scores
from prism.model.backbone import Prism
from prism.occlusion.benchmark import (
    CLEAN,
    IMAGENET_MEAN,
    Benchmark,
    Rows,
    Setting,
    Subject,
    digest,
    fingerprint,
    jobs,
    of_all,
    own_batches,
    refuse_mixtures,
    spread,
)
from prism.occlusion.fills import Fill, fill
from prism.occlusion.masks import mask_generator
from prism.reporting import tables
from prism.reporting.figures import COLOURS, class_colours
from prism.reporting.pages import Section, page
from prism.reporting.tables import with_deviation

PAPER_SETTING = Setting("PatchMask", 0.3)
PAPER_SETTINGS = (CLEAN, PAPER_SETTING)
CURVE = (CLEAN, *(Setting("PatchMask", tenth / 10) for tenth in range(1, 8)))
COST_SIZE = (512, 512)  # where the paper counts
MOST_NAMED = 24  # classes that the legend of the examples has room for
# Table 2(b) of the paper: parameters, FLOPs, mIoU clean and with 30 % of patches hidden
PUBLISHED = {
    "XCiT-T12": ("8 M", "", 39.9, 32.2),
    "PVTv2-B1": ("17.8 M", "34.2 G", 42.5, 34.8),
    "BiXT-Ti/16": ("19 M", "31.8 G", 39.2, 30.5),
    "PRISM": ("15.5 M", "35.6 G", 44.8, 39.7),
}
NOTE = (
    "mIoU in per cent of all pixels: C clean, Occ. with 30 % of patches hidden (hidden pixels are asked for too); with "
    "several runs or mask seeds, mean ± deviation over them. FLOPs are multiply-accumulates of a 512 x 512 picture, "
    f"PRISM's at mean steps {', '.join(f'{steps:g}' for steps in PAPER_STEPS)}. Rows marked as the paper's are its "
    "published values on ADE20K, for reference: they were not measured here."
)


class LabelledPictures(Protocol):
    """(image (3, H, W) in [0, 1], labels (H, W) with VOID where unknown) by index; sizes may differ."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Tensor, Tensor]: ...


class Shown(NamedTuple):
    """A picture as models see it."""

    image: Tensor  # (3, H, W) in [0, 1], hidden pixels filled
    labels: Tensor  # (H, W), of what is there, hidden or not
    hidden: Tensor  # (H, W) of bool


class OccludedImages(Dataset[Shown]):
    """Labelled pictures under one setting."""

    def __init__(
        self,
        pictures: LabelledPictures,
        setting: Setting,
        filling: Fill = "mean",
        seed: int = 0,
        mean: Sequence[float] = IMAGENET_MEAN,
    ):
        self.pictures, self.setting, self.seed = pictures, setting, seed
        self.filling: Fill = filling
        self.mean = torch.tensor(mean)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Shown:
        image, labels = self.pictures[index]
        generator = mask_generator(original_index(self.pictures, index), self.seed)
        hidden = self.setting.mask((image.shape[-2], image.shape[-1]), generator)
        other = image
        if self.filling == "texture":
            step = 1 + int(torch.randint(max(1, len(self) - 1), (), generator=generator))
            other, _ = self.pictures[(index + step) % len(self)]
        return Shown(fill(image, hidden, self.filling, self.mean, other, generator), labels, hidden)


def measure(
    subjects: Sequence[Subject],
    view: OccludedImages | Subset[Shown],
    classes: int,
    batch: int,
    workers: int,
    device: str,
    processes: PartialState | None = None,
) -> dict[tuple[str, str], Counts]:
    """One pass over the pictures, every model on the same ones. Models give scores (B, C, H, W) of their size.

    With `processes` each looks at its part of the batches, and is given what all counted.
    """
    nothing = Counts(torch.zeros(2, classes, classes, dtype=torch.long), torch.zeros(2, classes, dtype=torch.long))
    found = {(subject.name, subject.run): nothing for subject in subjects}
    for subject in subjects:
        subject.model.eval().to(device)  # not in inference mode: weights moved there could never be trained again
    own = own_batches(len(view), batch, processes)
    with torch.inference_mode():
        for shown in DataLoader(view, batch_sampler=own, num_workers=workers, collate_fn=_by_size):
            for images, labels, hidden in shown:
                for subject in subjects:
                    prediction = predict(subject, images.to(device), classes).cpu()
                    counts = count(labels, prediction, classes, hidden)
                    found[subject.name, subject.run] = added(found[subject.name, subject.run], counts)
    everyones = of_all(found, processes)
    return {key: reduce(added, (theirs[key] for theirs in everyones)) for key in found}


def predict(subject: Subject, images: Tensor, classes: int) -> Tensor:
    """The class of every pixel, (B, H, W)."""
    mean, std = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (subject.mean, subject.std))
    # one parameter tells the width of all: a float64 run is judged in float64
    dtype = next((p.dtype for p in subject.model.parameters()), images.dtype)
    found = subject.model(((images - mean) / std).to(dtype))
    if found.shape[1] != classes:
        raise ValueError(f"{subject.name} knows {found.shape[1]} classes, the data has {classes}")
    if not found.isfinite().all():
        raise ValueError(f"{subject.name} gave a score that is not finite")
    return found.argmax(1)


@dataclass(frozen=True)
class SegmentationBenchmark(Benchmark):
    """Rows are one for each model, run, setting, fill and mask seed."""

    pictures: LabelledPictures
    classes: Sequence[str]
    settings: Sequence[Setting] = PAPER_SETTINGS

    def run(self, subjects: Sequence[Subject], progress: Callable[[str], None] = lambda _: None) -> Rows:
        """Rows of scores, and rows of each class's IoU."""
        if not len(self.pictures):
            raise ValueError("the data set is empty")
        refuse_mixtures([(subject.name, subject.run, subject.model) for subject in subjects])
        about = self._about(subjects) if self.folder else {}
        measures = {
            (setting.name, filling, seed): partial(self._measured, subjects, setting, filling, seed)
            for setting, filling, seed in jobs(self.settings, self.fills, self.seeds)
        }
        return self.collected(measures, about, progress)

    def _measured(self, subjects: Sequence[Subject], setting: Setting, filling: Fill, seed: int) -> Rows:
        """Of one setting: rows of scores, and of each class's IoU."""
        view = OccludedImages(self.pictures, setting, filling, seed)
        found = measure(subjects, view, len(self.classes), self.batch, self.workers, self.device, self.processes)
        rows, of_classes = [], []
        for (name, run), counts in found.items():
            which = {"model": name, "run": run, "setting": setting.name}
            which |= {"fill": "", "mask seed": ""} if setting == CLEAN else {"fill": filling, "mask seed": seed}
            rows.append(which | {"images": len(self.pictures)} | scores(counts))
            of_classes += [which | row for row in class_rows(counts, list(self.classes))]
        return rows, of_classes

    def _about(self, subjects: Sequence[Subject]) -> dict[str, Any]:
        """What kept rows must be of."""
        shown = [part for index in spread(self.pictures) for part in self.pictures[index]]
        every = getattr(self.pictures, "fingerprint", None)  # files can change one by one
        return {
            "pictures": [len(self.pictures), digest(shown), every() if every else "", list(self.classes)],
            "subjects": [[s.name, s.run, fingerprint(s.model), list(s.mean), list(s.std)] for s in subjects],
        }


def write(
    benchmark: SegmentationBenchmark,
    subjects: Sequence[Subject],
    out: Path,
    command: str,
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Measure; write CSVs, the paper's table, curves.png, examples.png and report.html into `out`; return the table.

    All processes but the first have no more to do than to measure, and return nothing.
    """
    rows, of_classes = benchmark.run(subjects, progress)
    if not benchmark.is_first:
        return []
    headline = benchmark.fills[0]
    tables.write(rows, out / "segmentation", f"`{command}`")
    tables.write(of_classes, out / "classes", f"IoU of each class, and its share of the pixels.\n\n`{command}`")
    main = paper_table(rows, {s.name: costs(s.model) for s in subjects}, headline)
    tables.write(main, out / "table", f"{NOTE}\n\n`{command}`")
    curves(rows, headline).savefig(out / "curves.png", dpi=130)
    examples(benchmark, subjects).savefig(out / "examples.png", dpi=110)
    sections: list[tuple[str, str, tables.Rows | Path]] = [
        ("mIoU", f"{NOTE} Hidden pixels: {headline}.", main),
        ("Curves", "Against the share of cells hidden; bands are deviations over runs and seeds.", out / "curves.png"),
        ("Examples", "What models saw, what is there, and what they said.", out / "examples.png"),
        ("Classes", "IoU in per cent, clean, and the share of the pixels.", class_table(of_classes)),
        ("All rows", f"Scores from 0 to 1. Made by: {command}", rows),
    ]
    (out / "report.html").write_text(page("Segmentation under occlusion", [Section(*part) for part in sections]))
    return main


def paper_table(rows: tables.Rows, cost: Mapping[str, tuple[int, float]], filling: str) -> list[dict[str, Any]]:
    """A row a model as in the paper's Table 2(b), then the paper's own."""
    found = _mious(rows, filling)
    ours = [
        {
            "model": name,
            "Param.": f"{cost[name][0] / 1e6:.1f} M",
            "FLOPs": f"{cost[name][1] / 1e9:.1f} G",
            "mIoU C": with_deviation(found.get((name, CLEAN.name), [])),
            "mIoU Occ.": with_deviation(found.get((name, PAPER_SETTING.name), [])),
        }
        for name in dict.fromkeys(row["model"] for row in rows)
    ]
    theirs = [
        {
            "model": f"{name} (paper, ADE20K)",
            "Param.": size,
            "FLOPs": flops,
            "mIoU C": f"{clean:.1f}",
            "mIoU Occ.": f"{occluded:.1f}",
        }
        for name, (size, flops, clean, occluded) in PUBLISHED.items()
    ]
    return [*ours, *theirs]


def class_table(rows: tables.Rows) -> list[dict[str, Any]]:
    """A row a class, a column a model: IoU of clean pictures, mean and deviation over its runs."""
    lines: dict[str, dict[str, Any]] = {}
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["setting"] == CLEAN.name:
            lines[row["class"]] = {"class": row["class"], "share": f"{100 * row['share']:.1f}"}
            if row["IoU"] is not None:
                found[row["class"], row["model"]].append(100 * row["IoU"])
    models = dict.fromkeys(row["model"] for row in rows)
    return [
        line | {name: with_deviation(found.get((kind, name), [])) for name in models} for kind, line in lines.items()
    ]


def costs(model: nn.Module, size: tuple[int, int] = COST_SIZE) -> tuple[int, float]:
    """Parameters, and multiply-accumulates of a picture; a PRISM inside is counted at the paper's mean steps.

    Of the network itself: sizes, windows and mirrored views that it is used with are not its own.
    """
    model = getattr(model, "network", model)
    inner = next((module for module in model.modules() if isinstance(module, Prism)), None)
    if inner is None:
        return parameters(model), macs_by_module(model, size)[""]
    before = inner.fixed_steps
    try:
        inner.fixed_steps = 1
        at_one_step = macs_by_module(model, size)[""]
    finally:
        inner.fixed_steps = before
    steps = step_cost(inner, size)
    return parameters(model), at_one_step + steps.macs(PAPER_STEPS) - steps.at_one_step


def curves(rows: tables.Rows, filling: str) -> Figure:
    """mIoU against how much is hidden: of all pixels, and apart of visible and of hidden ones."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    whole, apart = figure.subplots(1, 2, sharey=True)
    panels = [(whole, "mIoU", "-"), (apart, "visible mIoU", "-"), (apart, "hidden mIoU", "--")]
    for axis, score, line in panels:
        found = _mious(rows, filling, score)
        for number, name in enumerate(dict.fromkeys(row["model"] for row in rows)):
            points = sorted((_share(setting), values) for (model, setting), values in found.items() if model == name)
            at = [share for share, _ in points]
            mean = np.array([statistics.mean(values) for _, values in points])
            spread = np.array([statistics.pstdev(values) for _, values in points])
            look: dict[str, Any] = dict(
                color=COLOURS[number % len(COLOURS)], marker="osD^vP"[number % 6], linestyle=line
            )
            axis.plot(at, mean, label=name if axis is whole else f"{name}, {score.split()[0]}", **look)
            axis.fill_between(at, mean - spread, mean + spread, color=look["color"], alpha=0.2, linewidth=0)
    for axis, title in ((whole, "all pixels"), (apart, "visible and hidden pixels")):
        axis.set(title=title, xlabel="share of cells hidden")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    whole.set(ylabel=f"mIoU, % ({filling} fill)", ylim=(0, None))
    return figure


def examples(benchmark: SegmentationBenchmark, subjects: Sequence[Subject]) -> Figure:
    """Two pictures, clean and under the strongest setting: as shown, the truth, and each model's answer."""
    shown = [index * (len(benchmark.pictures) // 2) for index in range(min(2, len(benchmark.pictures)))]
    settings = dict.fromkeys((benchmark.settings[0], benchmark.settings[-1]))
    colours = class_colours(len(benchmark.classes))
    several = len({s.name for s in subjects}) < len(subjects)
    titles = ["", "truth", *(f"{s.name}\n{s.run}" if several else s.name for s in subjects)]
    figure = Figure(figsize=(2.0 * len(titles), 2.1 * len(shown) * len(settings)), layout="constrained")
    axes = figure.subplots(len(shown) * len(settings), len(titles), squeeze=False)
    lines = ((index, setting) for index in shown for setting in settings)
    named: set[int] = set()
    for subject in subjects:  # of a run whose rows were all kept, no model has moved yet
        subject.model.eval().to(benchmark.device)
    for line, (index, setting) in zip(axes, lines, strict=True):
        image, labels, _ = OccludedImages(benchmark.pictures, setting, benchmark.fills[0], benchmark.seeds[0])[index]
        with torch.inference_mode():
            images = image[None].to(benchmark.device)
            answers = [predict(s, images, len(benchmark.classes))[0].cpu() for s in subjects]
        drawn = [image.permute(1, 2, 0).numpy(), *(colours[map_.numpy()] for map_ in (labels, *answers))]
        for axis, picture, title in zip(line, drawn, titles, strict=True):
            axis.imshow(picture, interpolation="nearest")
            axis.set_title(title or setting.name, fontsize=8)
            axis.set_axis_off()
        named |= {int(n) for map_ in (labels, *answers) for n in map_.unique() if n != VOID}
    patches = [Patch(color=to_hex(colours[n]), label=benchmark.classes[n]) for n in sorted(named)[:MOST_NAMED]]
    figure.legend(handles=patches, loc="outside lower left", ncols=len(titles), frameon=False, fontsize=8)
    return figure


def _by_size(shown: Sequence[Shown]) -> list[Shown]:
    """Pictures of one size together, (B, ...) each, so that none is padded or scaled for another's sake."""
    groups: dict[torch.Size, list[Shown]] = defaultdict(list)
    for one in shown:
        groups[one.labels.shape].append(one)
    return [Shown(*(torch.stack(parts) for parts in zip(*group, strict=True))) for group in groups.values()]


def _mious(rows: tables.Rows, filling: str, score: str = "mIoU") -> dict[tuple[str, str], list[float]]:
    """In per cent, by model and setting."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["fill"] in (filling, "") and row[score] is not None:
            found[row["model"], row["setting"]].append(100 * row[score])
    return dict(found)


def _share(setting: str) -> float:
    return 0.0 if setting == CLEAN.name else float(setting.removeprefix(PAPER_SETTING.kind))
