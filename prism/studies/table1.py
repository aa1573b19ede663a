"""Table 1: how accurate are classifiers when patches, a block, or all but a block are hidden?"""

import re
from collections.abc import Mapping
from typing import Any

from prism.metrics.complexity import parameters
from prism.occlusion import report as occlusion_report
from prism.occlusion.report import PUBLISHED, PUBLISHED_SETTINGS
from prism.studies import study as s

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


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Rows of the benchmark, with parameters and GMACs; and McNemar's test for each pair of models."""
    subjects, images = inputs.classifiers()
    rows, predictions = inputs.benchmark(images, s.PAPER_SETTINGS, out).run(subjects, progress)
    s.add_costs(rows, subjects, images)
    sizes = {subject.name: parameters(subject.model) for subject in subjects}
    significance = occlusion_report.significance_table(predictions, FILL) if len(sizes) > 1 else []
    return {"table1": [{**row, "parameters": sizes[row["model"]]} for row in rows], "significance": significance}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows, significance = tables["table1"], tables.get("significance", [])
    caption = "Accuracy against how much is hidden. Dashed: the paper's published values on ImageNet."
    sections = [
        s.Section("", _words(rows, significance), paper_table(rows)),
        s.Section("", caption, s.save(figure(rows), out / "table1.png")),
    ]
    if significance:
        caption = "Differences in points; p by McNemar's exact test on the same pixels."
        sections.append(s.Section("", caption, [_difference(row) for row in significance]))
    return sections


def paper_table(rows: s.Rows) -> s.Rows:
    """The paper's layout: parameters, GMACs of clean images, accuracies; then the paper's own rows."""
    sizes = s.means(rows, ["model"], "parameters")
    costs = s.means(s.where(rows, setting=s.CLEAN.name), ["model"], "GMAC")
    lines = []
    for line in occlusion_report.paper_table(rows, FILL):
        model, scores = line["model"], {setting: score for setting, score in line.items() if setting != "model"}
        if (model,) in sizes:
            size, cost = f"{sizes[model,] / 1e6:.1f} M", f"{costs[model,]:.2g} G"
        else:
            size, cost = PUBLISHED_COSTS[model.partition(" (paper")[0]]
        lines.append({"model": model, "size": size, "FLOPs": cost, **{_heading(n): v for n, v in scores.items()}})
    known = {setting: f"± {deviation:.2f}" for setting, deviation in PUBLISHED_DEVIATIONS.items()}
    spread = {_heading(setting): known.get(setting, "") for setting in s.column(rows, "setting")}
    return [*lines, {"model": "PRISM's three runs (paper, ImageNet)", "size": "", "FLOPs": "", **spread}]


def _heading(setting: str) -> str:
    """PatchMask0.6 in three words, which a narrow column can break."""
    return re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", setting)


def _difference(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"pair": row["pair"], "setting": row["setting"], "points": f"{row['points']:+.1f}", "p": f"{row['p']:.2g}"}


def figure(rows: s.Rows) -> s.Figure:
    """The benchmark's curves, and two of the paper's models."""
    drawn = occlusion_report.curves(rows, FILL)
    used = len(s.column(rows, "model"))
    for axis in drawn.axes:
        kind = axis.get_title()
        for number, name in enumerate(("PRISM", "PVTv2-B1"), start=used):
            points = [(0.0, PUBLISHED[name]["clean"])]
            points += [(s.hidden_share(n), score) for n, score in PUBLISHED[name].items() if n.startswith(kind)]
            look = s.style(number) | s.PAPER
            axis.plot(*zip(*sorted(points), strict=True), label=f"{name} (paper, ImageNet)", **look)
    s.from_zero(drawn.axes[0])
    drawn.axes[0].get_legend().remove()  # pyright: ignore[reportOptionalMemberAccess]
    drawn.axes[1].legend(frameon=False, fontsize=8, loc="lower right")  # where blocks leave room
    return drawn


def _words(rows: s.Rows, significance: s.Rows) -> str:
    scores = s.means(rows, ["model", "setting"], "top-1")
    models, settings = s.column(rows, "model"), s.column(rows, "setting")
    hiding = [setting for setting in settings if setting != s.CLEAN.name]
    clean = s.listed([f"{scores[model, s.CLEAN.name]:.1f} % for {model}" for model in models])
    said = [f"On {rows[0]['images']} clean images, top-1 accuracy is {clean}."]
    for model in models:
        own = {setting: scores[model, setting] for setting in hiding}
        worst, best = min(own, key=own.__getitem__), max(own, key=own.__getitem__)
        said.append(f"Under occlusion, {model} has {own[worst]:.1f} % ({worst}) to {own[best]:.1f} % ({best}).")
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
