"""How robust is a segmenter to occlusion? Patches are hidden, and what is asked for stays what it was.

Scores are of all pixels, and apart of those that could be seen and those that could not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from prism.data.label_maps import VOID
from prism.data.sources import name_of
from prism.metrics.iou import class_rows, scores
from prism.occlusion.hiding import Images
from prism.occlusion.runner import Benchmark, Progress, Subject, fingerprint, ready, refuse_mixtures
from prism.occlusion.settings import CLEAN, Job, Setting
from prism.reporting.figures import class_colours, image_grid, pixels, save
from prism.reporting.tables import Row, Tables
from prism.tasks.segmentation.evaluate import OccludedImages, costs, count_pixels, label_pixels, summed

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
        for (name, run), counts in summed(self.everyones(counted)).items():
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
