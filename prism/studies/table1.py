"""Table 1: how accurately do classifiers see when parts of pictures are hidden?"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from prism.metrics.complexity import parameters
from prism.occlusion import report as occlusion_report
from prism.occlusion.benchmark import CLEAN, PAPER_SETTINGS
from prism.occlusion.report import PUBLISHED, PUBLISHED_SETTINGS
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows
from prism.studies.accuracy import add_costs
from prism.studies.material import Material
from prism.studies.study import (
    MARKERS,
    PAPER,
    Progress,
    Section,
    Study,
    Tables,
    column,
    fit_upright,
    listed,
    means,
    save,
)

FILL = "mean"
# Table 1 of the paper: parameters and FLOPs, and the deviations of PRISM's three runs
PUBLISHED_COSTS = {
    "PVTv2-B1": ("13 M", "2.1 G"),
    "XCiT-T24": ("12 M", "2.3 G"),
    "BiXT-Ti/16": ("15 M", "1.7 G"),
    "BiFormer-T": ("13 M", "2.2 G"),
    "PRISM": ("11 M", "2.2 G"),
}
PUBLISHED_DEVIATIONS: dict[str, float] = dict(
    zip(PUBLISHED_SETTINGS, (0.12, 0.18, 0.21, 0.10, 0.16, 0.25), strict=True)
)
SIGNIFICANT = 0.05


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Rows of the benchmark, with parameters and GMACs; and McNemar's test of each pair of models."""
    subjects, pictures = material.classifiers()
    rows, predictions = material.benchmark(pictures, PAPER_SETTINGS, out).run(subjects, progress)
    add_costs(rows, subjects, pictures)
    sizes = {subject.name: parameters(subject.model) for subject in subjects}
    significance = occlusion_report.significance_table(predictions, FILL) if len(sizes) > 1 else []
    return {
        "table1": [{**row, "parameters": sizes[row["model"]]} for row in rows],
        "significance": significance,
    }


def report(tables: Tables, out: Path) -> list[Section]:
    rows, significance = tables["table1"], tables.get("significance", [])
    sections = [
        Section(STUDY.title, _words(rows, significance), paper_table(rows)),
        Section(
            "",
            "Accuracy against how much is hidden. Dashed: published values of the paper, on ImageNet.",
            save(figure(rows), out / "table1.png"),
        ),
    ]
    if significance:
        caption = "Differences in points; p by McNemar's exact test on the same pixels."
        sections.append(Section("", caption, [_difference(row) for row in significance]))
    return sections


def paper_table(rows: Rows) -> Rows:
    """The paper's layout: parameters, GMACs of clean pictures, accuracies; then the paper's own rows."""
    sizes = means(rows, ["model"], "parameters")
    costs = means([row for row in rows if row["setting"] == CLEAN.name], ["model"], "GMAC")
    lines = []
    for line in occlusion_report.paper_table(rows, FILL):
        model, scores = line["model"], {setting: score for setting, score in line.items() if setting != "model"}
        if (model,) in sizes:
            size, cost = f"{sizes[model,] / 1e6:.1f} M", f"{costs[model,]:.2g} G"
        else:
            size, cost = PUBLISHED_COSTS[model.partition(" (paper")[0]]
        lines.append({"model": model, "size": size, "FLOPs": cost, **{_heading(s): v for s, v in scores.items()}})
    known = {setting: f"± {deviation:.2f}" for setting, deviation in PUBLISHED_DEVIATIONS.items()}
    spread = {_heading(setting): known.get(setting, "") for setting in column(rows, "setting")}
    return [*lines, {"model": "PRISM's three runs (paper, ImageNet)", "size": "", "FLOPs": "", **spread}]


def _heading(setting: str) -> str:
    """PatchMask0.6 in three words, which a narrow column can break."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", setting)


def _difference(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"pair": row["pair"], "setting": row["setting"], "points": f"{row['points']:+.1f}", "p": f"{row['p']:.2g}"}


def figure(rows: Rows) -> Figure:
    """The benchmark's curves, and two of the paper's models."""
    drawn = occlusion_report.curves(rows, FILL)
    used = len(column(rows, "model"))
    for axis in drawn.axes:
        kind = axis.get_title()
        for number, name in enumerate(("PRISM", "PVTv2-B1"), start=used):
            points = [(0.0, PUBLISHED[name]["clean"])]
            points += [(hidden_share(s), score) for s, score in PUBLISHED[name].items() if s.startswith(kind)]
            axis.plot(
                *zip(*sorted(points), strict=True),
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                label=f"{name} (paper, ImageNet)",
                **PAPER,
            )
    fit_upright(drawn.axes[0])
    drawn.axes[0].get_legend().remove()  # pyright: ignore[reportOptionalMemberAccess]
    drawn.axes[1].legend(frameon=False, fontsize=8, loc="lower right")  # where blocks leave room
    return drawn


def hidden_share(setting: str) -> float:
    """Of a picture, by a setting's name."""
    if setting == CLEAN.name:
        return 0.0
    kind = next(kind for kind in ("PatchMask", "BlockMask", "OnlyOne") if setting.startswith(kind))
    strength = float(setting.removeprefix(kind))
    area = (strength / 224) ** 2
    return {"PatchMask": strength, "BlockMask": area, "OnlyOne": 1 - area}[kind]


def _words(rows: Rows, significance: Rows) -> str:
    scores = means(rows, ["model", "setting"], "top-1")
    models, settings = column(rows, "model"), column(rows, "setting")
    hiding = [setting for setting in settings if setting != CLEAN.name]
    clean = listed([f"{model} {scores[model, CLEAN.name]:.1f} %" for model in models])
    said = [f"On {rows[0]['images']} whole pictures, top-1 accuracy is {clean}."]
    for model in models:
        worst = min(hiding, key=lambda setting, model=model: scores[model, setting])
        best = max(hiding, key=lambda setting, model=model: scores[model, setting])
        said.append(
            f"With parts hidden, {model} has from {scores[model, worst]:.1f} % ({worst}) to "
            f"{scores[model, best]:.1f} % ({best})."
        )
    first = next((model for model in models if model.startswith("prism_")), models[0])
    for other in (model for model in models if model != first):
        gaps = {setting: scores[first, setting] - scores[other, setting] for setting in hiding}
        ways = {f"{first} - {other}": 1, f"{other} - {first}": -1}  # of the pairs of runs, their points
        sure = {
            row["setting"]
            for row in significance
            if row["p"] < SIGNIFICANT and ways.get(row["pair"], 0) * row["points"] > 0
        }
        ahead = [setting for setting in hiding if gaps[setting] > 0]
        widest = max(hiding, key=lambda setting, gaps=gaps: abs(gaps[setting]))
        said.append(
            f"{first} is ahead of {other} in {len(ahead)} of {len(hiding)} occluded settings, significantly "
            f"(p < {SIGNIFICANT}) in {len(sure.intersection(ahead))}; the widest gap is {gaps[widest]:+.1f} points, "
            f"at {widest}."
        )
    said.append(
        "Rows marked as the paper's are its published values on ImageNet-1K after 300 epochs: for reference, not "
        "measured here."
    )
    return " ".join(said)


STUDY = Study(
    "table1",
    "Classification under occlusion",
    "how accurate are classifiers when patches, a block, or all but a block are hidden?",
    "Table 1",
    "classifiers; several runs of a model give deviations",
    "classifiers",
    measure,
    report,
)
