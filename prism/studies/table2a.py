"""Table 2(a): how well do detectors find objects of which a part is hidden?"""

from pathlib import Path

from matplotlib.figure import Figure

from prism.metrics.complexity import parameters
from prism.occlusion.detection import (
    LETTERS,
    MASK_RCNN,
    NOTE,
    PUBLISHED,
    RETINANET,
    SHARES,
    DetectionBenchmark,
    curves,
    of_head,
    paper_table,
    share_of,
)
from prism.reporting.tables import Rows
from prism.studies.material import Material
from prism.studies.study import PAPER, Progress, Section, Study, Tables, column, fit_upright, means, save

FILL = "mean"
QUICK_SHARES = (0.0, 0.3, 0.5)
WORTH_COMPARING = 1.0  # AP: a share of less says nothing


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """COCO's numbers of every detector, setting and subset of the objects; and what was hidden."""
    subjects, pictures = material.detectors()
    shares = QUICK_SHARES if material.quick else SHARES
    benchmark = DetectionBenchmark(
        pictures,
        shares,
        batch=min(material.batch, 8),
        workers=material.workers,
        device=material.device,
        folder=out / "done",
    )
    rows, blocks = benchmark.run(subjects, progress)
    sizes = {(s.backbone, s.head): parameters(s.network) for s in subjects}
    return {
        "table2a": [{**row, "parameters": sizes[row["backbone"], row["head"]]} for row in rows],
        "blocks": [{**row, "left out": len(getattr(pictures, "broken", ()))} for row in blocks],
    }


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["table2a"]
    sizes = {(row["backbone"], row["head"]): row["parameters"] for row in rows}
    lines = paper_table(rows, sizes, FILL)
    heads = [head for head in LETTERS if head in column(rows, "head")]
    drawn = save(figure(rows), out / "table2a.png")
    return [
        *(
            Section("" if place else STUDY.title, f"{head}." if place else f"{_words(rows, tables)} {head}:", of)
            for place, (head, of) in enumerate((head, of_head(lines, head)) for head in heads)
        ),
        Section("", "AP against the share hidden of two objects a picture. Grey: the paper's, on COCO.", drawn),
    ]


def figure(rows: Rows) -> Figure:
    """The benchmark's curves, and the paper's PRISM."""
    drawn = curves(rows, FILL)
    for head, colour in (("RetinaNet", "#444444"), ("Mask R-CNN", "#999999")):
        if head in column(rows, "head"):
            points = [(share_of(setting), ap) for setting, ap in published("PRISM", head, "box AP").items()]
            label = f"PRISM, {head}, box (paper, COCO)"
            drawn.axes[0].plot(*zip(*sorted(points), strict=True), color=colour, marker="o", label=label, **PAPER)
    fit_upright(drawn.axes[0])
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    for legend in (axis.get_legend() for axis in drawn.axes):
        if legend:
            legend.remove()
    drawn.set_size_inches(9.5, 4.4)
    drawn.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return drawn


def published(model: str, head: str, number: str) -> dict[str, float]:
    """The paper's AP by setting: `number` is box AP or mask AP."""
    letter = LETTERS[head].get(number)
    names, values = (RETINANET, PUBLISHED[model][0]) if head == "RetinaNet" else (MASK_RCNN, PUBLISHED[model][1])
    listed: dict[str, float] = dict(zip(names, values, strict=False))
    settings = {"clean": "C", "M30": "M30", "M50": "M50"}
    if letter is None:
        return {}
    return {name: listed[f"{s}{letter}"] for name, s in settings.items() if f"{s}{letter}" in listed}


def _words(rows: Rows, tables: Tables) -> str:
    hidden = tables["blocks"][0]
    said = [
        f"Of {hidden['pictures']} pictures, {hidden['two objects']} have two objects or more that can lose a part, "
        f"{hidden['one object']} have one and {hidden['no object']} none."
    ]
    if hidden["left out"]:
        said.append(f"{hidden['left out']} broken annotations were left out.")
    found = means([row for row in rows if row["subset"] == "all"], ["backbone", "head", "setting"], "box AP")
    hardest, kept = max(column(rows, "setting"), key=share_of), {}
    for backbone, head in dict.fromkeys((row["backbone"], row["head"]) for row in rows):
        clean, hidden = (100 * found.get((backbone, head, setting), 0.0) for setting in ("clean", hardest))
        if clean >= WORTH_COMPARING:
            kept[backbone, head] = hidden / clean
        said.append(f"{head} on {backbone} has {clean:.1f} box AP, and {hidden:.1f} with {hardest}.")
    if len(kept) > 1:
        (backbone, head), share = max(kept.items(), key=lambda entry: entry[1])
        said.append(f"{head} on {backbone} keeps the largest share of its AP, {share:.0%}.")
    return " ".join([*said, NOTE])


STUDY = Study(
    "table2a",
    "Detection under occlusion",
    "how much AP do detectors lose when a share of two objects a picture is hidden?",
    "Table 2(a)",
    "detectors",
    "detectors",
    measure,
    report,
)
