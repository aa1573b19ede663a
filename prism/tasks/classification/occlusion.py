"""Classifiers with parts of images hidden: what is measured, and examples of what they saw."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from prism.metrics.complexity import parameters
from prism.occlusion.benchmark import Key, OcclusionBenchmark, Predictions
from prism.occlusion.hiding import Occluded
from prism.occlusion.runner import Subject
from prism.occlusion.settings import Job
from prism.reporting.figures import image_grid, pixels, save
from prism.reporting.tables import Tables
from prism.tasks.classification.evaluate import add_costs
from prism.tasks.classification.report import retention_table, significance_table
from prism.tasks.task import Progress

SHOWN = 3  # images of the examples
WIDEST = 8  # of them in a row
NAMED = 3  # models whose answers are marked


def measure(benchmark: OcclusionBenchmark, subjects: Sequence[Subject], out: Path, progress: Progress) -> Tables:
    """Rows with parameters and GMACs, what is kept of clean accuracy, and McNemar's test of each pair of models."""
    rows, predictions = benchmark.run(subjects, progress)
    if not benchmark.is_first:
        return {}
    add_costs(rows, subjects, benchmark.images)
    sizes = {subject.name: parameters(subject.model) for subject in subjects}
    rows = [{**row, "parameters": sizes[row["model"]]} for row in rows]
    save(examples(benchmark, predictions), out / "examples.png", dpi=110)
    return {
        "occlusion": rows,
        "significance": significance_table(predictions, benchmark.fills[0]) if len(sizes) > 1 else [],
        "retention": retention_table(rows, benchmark.fills[0]),
    }


def examples(benchmark: OcclusionBenchmark, predictions: Mapping[Key, Predictions]) -> Figure:
    """Images under every setting, and under every fill if there are several; and which models were right."""
    images, settings, fills, seed = benchmark.images, benchmark.settings, benchmark.fills, benchmark.seeds[0]
    variants = [(Job(s, fills[0], seed), s.name) for s in settings]
    if len(fills) > 1:
        last = next((s for s in settings if s.name == "BlockMask112"), settings[-1])
        variants += [(Job(last, f, seed), f"{last.name}, {f}") for f in fills[1:]]
    first_runs: dict[str, str] = {}
    for name, run, *_ in predictions:
        first_runs.setdefault(name, run)

    def tile(index: int, job: Job, title: str) -> tuple[Any, str]:
        of_job = job.setting.name, job.filling, job.seed
        ranks = {run: predictions[*run, *of_job].rank[index] for run in first_runs.items()}
        answers = [f"{'✗' if rank else '✓'} {name}" for (name, _), rank in ranks.items()]
        return pixels(Occluded(images, *job)[index][0]), "\n".join([title, *answers[:NAMED]])

    places = [index * (len(images) // SHOWN) for index in range(min(SHOWN, len(images)))]
    lines = [variants[first : first + WIDEST] for first in range(0, len(variants), WIDEST)]
    return image_grid([[tile(index, *variant) for variant in line] for index in places for line in lines], 1.7)
