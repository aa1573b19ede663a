"""The page at the end of a run: curves and the table of epochs, from its log alone."""

import json
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from prism.reporting import tables
from prism.reporting.pages import Section, page
from prism.training.log import read_log
from prism.training.settings import Settings, what_counts


def write(settings: Settings) -> None:
    """curves.png, epochs.csv, epochs.md and report.html in the run's folder."""
    out = settings.out
    rows = read_log(out / "log.jsonl")
    ended = [row for row in rows if row["kind"] == "epoch"]
    names = dict.fromkeys(name for row in ended for name in row if name != "kind")  # not every epoch is judged
    epochs = [{name: row.get(name) for name in names} for row in ended]
    fields = [{"setting": name, "value": json.dumps(value)} for name, value in what_counts(settings).items()]
    tables.write(epochs, out / "epochs", "One row an epoch.")
    curves(rows).savefig(out / "curves.png", dpi=120)
    sections: list[tuple[str, str, tables.Rows | Path]] = [
        ("Curves", "Training losses by step; the rest by epoch.", out / "curves.png"),
        ("Epochs", "Losses are means over the epoch's training batches.", epochs),
        ("Settings", "What decides the outcome of this run.", fields),
    ]
    if skipped := [{"picture": row["reason"]} for row in rows if row["kind"] == "skipped"]:
        sections.append(("Skipped", "Pictures that could not be read.", skipped))
    (out / "report.html").write_text(page(f"Training in {out.name}", [Section(*part) for part in sections]))


def curves(rows: list[dict[str, Any]]) -> Figure:
    """Loss and rate by step; accuracy, halting steps and use of the codebooks by epoch."""
    steps = [row for row in rows if row["kind"] == "train"]
    epochs = [row for row in rows if row["kind"] == "epoch"]
    other = {"kind", "step", "lr", "images/s"}
    losses = [name for name in (steps[-1] if steps else {}) if name not in other and not name.startswith("steps ")]
    judged = [name for name in (epochs[-1] if epochs else {}) if name.endswith(("top-1", "AP", "mIoU"))]
    panels = [
        ("loss", steps, losses),
        ("learning rate", steps, ["lr"]),
        ("judged", epochs, judged),
        ("mean steps", epochs, [f"steps {stage}" for stage in range(1, 5)]),
        ("perplexity of the codes", epochs, [f"perplexity {stage}" for stage in range(1, 5)]),
    ]
    panels = [panel for panel in panels if any(name in row for row in panel[1] for name in panel[2])]
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    colours = matplotlib.colormaps["viridis"]
    for place, (title, source, names) in enumerate(panels, start=1):
        axis = figure.add_subplot(1, len(panels), place)
        for number, name in enumerate(names):
            points = [(row["step"], row[name]) for row in source if name in row]
            if points:
                colour = colours(number / max(1, len(names) - 0.5))
                axis.plot(*zip(*points, strict=True), label=name, color=colour, marker="o" if len(points) < 30 else "")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("optimiser step")
        if len(names) > 1:
            axis.legend(fontsize=8)
        if title == "loss":
            axis.set_yscale("log")
    return figure
