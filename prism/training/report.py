"""The page at the end of a run: curves and the table of epochs, from its log alone."""

import json
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from prism.reporting import provenance, tables
from prism.reporting.figures import panels, save
from prism.reporting.pages import Section, write_page
from prism.tasks.recipe import Recipe, resume_fields
from prism.training.log import read_log


def write(recipe: Recipe, best: str) -> None:
    """curves.png, epochs.csv, epochs.md and report.html in the run's folder; `best` is the headline of an epoch."""
    out = recipe.out
    rows = read_log(out / "log.jsonl")
    ended = [{name: row[name] for name in row if name != "kind"} for row in rows if row["kind"] == "epoch"]
    epochs = [{name: row.get(name) for name in tables.columns(ended)} for row in ended]  # not every epoch is evaluated
    fields = [{"setting": name, "value": json.dumps(value)} for name, value in resume_fields(recipe).items()]
    tables.write(epochs, out / "epochs", f"One row per epoch.\n\n`{provenance.command()}`")
    drawn = save(curves(rows, best.partition(" ")[2]), out / "curves.png")
    sections = [
        Section("Curves", "Training losses by step; the rest by epoch.", drawn),
        Section("Epochs", "Losses are means over the epoch's training batches.", epochs),
        Section("Settings", "Everything that determines the outcome of this run.", fields),
    ]
    if skipped := [{"image": row["reason"]} for row in rows if row["kind"] == "skipped"]:
        sections.append(Section("Skipped", "Images that could not be read.", skipped))
    last = next((row for row in reversed(epochs) if row.get(best) is not None), {})
    summary = f"{recipe.model} reaches a {best} of {last[best]:.4g} after {last['step']} steps." if last else ""
    write_page(out / "report.html", f"Training in {out.name}", sections, summary)


def curves(rows: list[dict[str, Any]], metric: str) -> Figure:
    """Loss and rate by step; the metric on every split, halting steps and use of the codebooks by epoch."""
    steps = [row for row in rows if row["kind"] == "train"]
    epochs = [row for row in rows if row["kind"] == "epoch"]
    by_step, by_epoch = tables.columns(steps), tables.columns(epochs)
    other = {"kind", "step", "lr", "images/s"}
    drawn = [
        ("loss", steps, [name for name in by_step if name not in other and not name.startswith("steps ")]),
        ("learning rate", steps, ["lr"]),
        (metric, epochs, [name for name in by_epoch if name.partition(" ")[2] == metric]),
        ("mean steps", epochs, [name for name in by_epoch if name.startswith("steps ")]),
        ("perplexity of the codes", epochs, [name for name in by_epoch if name.startswith("perplexity ")]),
    ]
    drawn = [panel for panel in drawn if any(name in row for row in panel[1] for name in panel[2])]
    figure, axes = panels(len(drawn), height=3.4, sharey=False)
    colours = matplotlib.colormaps["viridis"]
    for axis, (title, source, names) in zip(axes, drawn, strict=True):
        for number, name in enumerate(names):
            points = [(row["step"], row[name]) for row in source if name in row]
            colour = colours(number / max(1, len(names) - 0.5))
            axis.plot(*zip(*points, strict=True), label=name, color=colour, marker="o" if len(points) < 30 else "")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("optimiser step")
        if len(names) > 1:
            axis.legend(fontsize=8)
        if title == "loss":
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:g}")
    return figure
