"""Figure A1: how do the steps of each stage change during training?

From the log of a run alone.
"""

from typing import Any

import numpy as np

from prism.analysis.halting import NEARLY, stable_from
from prism.studies import study as s
from prism.training.log import read_log

CURVES_PER_ROW = 3
LABELS = {"epoch": "epoch", "step": "optimiser step"}


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Mean steps of each stage over a window of training steps, for every line of every log."""
    rows, left_out = [], []
    for file in inputs.files():
        log = read_log(file.parent / "log.jsonl")
        found = _rows(str(file.parent), log)
        rows += found
        if not found:
            why = "its log does not record steps" if log else "there is no log.jsonl next to it"
            left_out += s.skipped([str(file)], why)
    if not rows:
        raise s.Inapplicable("; ".join(f"{row['what']} cannot be used: {row['why']}" for row in left_out))
    return {"halting-training": rows, s.SKIPPED: left_out}


def _rows(run: str, log: s.Rows) -> list[dict[str, Any]]:
    """Epochs between the log's epoch rows are interpolated."""
    ends = [(0, 0), *((row["step"], row["epoch"]) for row in log if row["kind"] == "epoch")]
    steps, epochs = zip(*ends, strict=True)
    if len(ends) < 2:
        return []
    return [
        {"run": run, "step": row["step"], "epoch": float(np.interp(row["step"], steps, epochs))}
        | {"stage": int(name.removeprefix("steps ")), "steps": row[name]}
        for row in log
        if row["kind"] == "train"
        for name in row
        if name.startswith("steps ")
    ]


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["halting-training"]
    caption, table = "Mean steps of the stages over training.", s.shown(_table(rows), without=())
    return s.told(_words(rows), table, caption, figure(rows), out / "halting-training.png")


def figure(rows: s.Rows) -> s.Figure:
    runs = s.column(rows, "run")
    across = min(CURVES_PER_ROW, len(runs))
    down = -(-len(runs) // across)
    sheet = s.Figure(figsize=(max(6.0, 4.2 * across), 3.5 * down), layout="constrained")
    axes = list(sheet.subplots(down, across, squeeze=False, sharey=True).flat)
    for axis in axes[len(runs) :]:
        axis.set_axis_off()
    # a run that ends within its first epoch is shown in optimiser steps
    time = "epoch" if max(row["epoch"] for row in rows) > 1 else "step"
    for axis, run in zip(axes, runs, strict=False):
        for number, (stage, points) in enumerate(_curves(rows, run, time).items()):
            axis.plot(*zip(*points, strict=True), color=s.style(number)["color"], label=f"stage {stage}")
        axis.set(title=s.Path(run).name, xlabel=LABELS[time], xlim=(0, None), ylim=(0.8, None))
        axis.grid(alpha=0.3)
    sheet.axes[0].set(ylabel="mean steps of refinement")
    sheet.axes[0].legend(frameon=False, fontsize=8)
    return sheet


def _curves(rows: s.Rows, run: str, time: str = "epoch") -> dict[int, list[tuple[float, float]]]:
    """By stage."""
    own = s.where(rows, run=run)
    return {n: [(row[time], row["steps"]) for row in s.where(own, stage=n)] for n in s.column(own, "stage")}


def _table(rows: s.Rows) -> s.Rows:
    return [
        {
            "run": s.Path(run).name,
            "stage": stage,
            "first steps": points[0][1],
            "last steps": points[-1][1],
            "stable after, % of training": 100 * stable_from(points) / points[-1][0],
        }
        for run in s.column(rows, "run")
        for stage, points in _curves(rows, run).items()
    ]


def _words(rows: s.Rows) -> str:
    said = []
    for run in s.column(rows, "run"):
        curves = _curves(rows, run)
        order = sorted(curves, key=lambda stage, curves=curves: -curves[stage][-1][1])
        stable = max(stable_from(points) / points[-1][0] for points in curves.values())
        said.append(
            f"{s.Path(run).name} ends with {', '.join(f'{curves[n][-1][1]:.2f} in stage {n}' for n in order)}; its "
            f"steps are stable, within {NEARLY}, after {stable:.0%} of training."
        )
    said.append(
        "In the paper all stages rise early and are nearly stable after a third of training; stage 3 ends with the "
        "most steps, then stage 2. It shows this in a figure without numbers, so none are listed here."
    )
    return " ".join(said)
