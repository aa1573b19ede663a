"""Figure A1: how do the steps of the stages change while PRISM is trained? From the log of a run alone."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.study import (
    SKIPPED,
    STAGE_COLOURS,
    STAGES,
    Progress,
    Section,
    Study,
    Tables,
    column,
    save,
    shown,
    skipped,
)
from prism.training.log import read_log

NEARLY = 0.1  # steps: what counts as stable
CURVES_A_ROW = 3
TOLD_IN = {"epoch": "epoch", "step": "optimiser step"}


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Mean steps of each stage over a window of training steps, for every line of every log."""
    rows, left_out = [], []
    for file in material.files():
        log = read_log(file.parent / "log.jsonl")
        found = list(_rows(str(file.parent), log))
        rows += found
        if not found:
            why = "its log tells of no steps" if log else "there is no log.jsonl beside it"
            left_out += skipped([str(file)], why)
    if not rows:
        raise Inapplicable("; ".join(f"{row['what']} cannot be used: {row['why']}" for row in left_out))
    return {"halting-training": rows, SKIPPED: left_out}


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["halting-training"]
    caption = "Mean steps of the stages over training."
    drawn = save(figure(rows), out / "halting-training.png")
    return [Section(STUDY.title, _words(rows), shown(_table(rows), without=())), Section("", caption, drawn)]


def figure(rows: Rows) -> Figure:
    runs = column(rows, "run")
    across = min(CURVES_A_ROW, len(runs))
    down = -(-len(runs) // across)
    sheet = Figure(figsize=(max(6.0, 4.2 * across), 3.5 * down), layout="constrained")
    axes = list(sheet.subplots(down, across, squeeze=False, sharey=True).flat)
    for axis in axes[len(runs) :]:
        axis.set_axis_off()
    # a run that ends within its first epoch is told in optimiser steps
    across_training = "epoch" if max(row["epoch"] for row in rows) > 1 else "step"
    for axis, run in zip(axes, runs, strict=False):
        for stage in STAGES:
            points = _curve(rows, run, stage, across_training)
            axis.plot(*zip(*points, strict=True), color=STAGE_COLOURS[stage], label=f"stage {stage}")
        axis.set(title=Path(run).name, xlabel=TOLD_IN[across_training], xlim=(0, None), ylim=(0.8, None))
        axis.grid(alpha=0.3)
    sheet.axes[0].set(ylabel="mean steps of refinement")
    sheet.axes[0].legend(frameon=False, fontsize=8)
    return sheet


def _rows(run: str, log: Rows) -> list[dict[str, Any]]:
    """Epochs between the log's epoch rows are counted in equal parts."""
    ends = [(0, 0), *((row["step"], row["epoch"]) for row in log if row["kind"] == "epoch")]
    told = [row for row in log if row["kind"] == "train" and "steps 1" in row]
    steps, epochs = zip(*ends, strict=True)
    if len(ends) < 2:
        return []
    return [
        {
            "run": run,
            "step": row["step"],
            "epoch": float(np.interp(row["step"], steps, epochs)),
            "stage": stage,
            "steps": row[f"steps {stage}"],
        }
        for row in told
        for stage in STAGES
    ]


def _curve(rows: Rows, run: str, stage: int, by: str = "epoch") -> list[tuple[float, float]]:
    return [(row[by], row["steps"]) for row in rows if (row["run"], row["stage"]) == (run, stage)]


def _stable_from(points: list[tuple[float, float]]) -> float:
    """The epoch after which the steps stay within NEARLY of where they end."""
    last = points[-1][1]
    late = [epoch for epoch, steps in points if abs(steps - last) > NEARLY]
    return late[-1] if late else points[0][0]


def _table(rows: Rows) -> Rows:
    return [
        {
            "run": Path(run).name,
            "stage": stage,
            "steps at first": points[0][1],
            "at last": points[-1][1],
            "stable after, % of training": 100 * _stable_from(points) / points[-1][0],
        }
        for run in column(rows, "run")
        for stage in STAGES
        for points in [_curve(rows, run, stage)]
    ]


def _words(rows: Rows) -> str:
    said = []
    for run in column(rows, "run"):
        curves = {stage: _curve(rows, run, stage) for stage in STAGES}
        order = sorted(STAGES, key=lambda stage, curves=curves: -curves[stage][-1][1])
        stable = max(_stable_from(points) / points[-1][0] for points in curves.values())
        said.append(
            f"{Path(run).name} ends with {', '.join(f'{curves[s][-1][1]:.2f} in stage {s}' for s in order)}; its steps "
            f"are stable, within {NEARLY}, after {stable:.0%} of training."
        )
    said.append(
        "In the paper all stages rise early and are nearly stable after a third of training; stage 3 ends with the "
        "most steps, then stage 2. It gives this as a figure without numbers, so none are listed here."
    )
    return " ".join(said)


STUDY = Study(
    "halting-training",
    "Steps over training",
    "how do the steps of the stages change over the epochs of a training?",
    "Figure A1",
    "weights of PRISM beside the log of their run",
    "classifiers",
    measure,
    report,
)
