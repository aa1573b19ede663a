"""Table 3, the ablations: what are the most steps in training, the memory and dynamic halting worth?

(a) compares trainings; (b) and (c) are switches of one training at inference.
"""

from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prism.model.backbone import Prism
from prism.occlusion.benchmark import CLEAN, Setting, Subject
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.study import (
    MARKERS,
    PAPER,
    SKIPPED,
    Progress,
    Section,
    Study,
    Tables,
    column,
    grouped,
    means,
    save,
    skipped,
    with_deviation,
)
from prism.studies.variants import switched
from prism.tasks.classification.evaluate import add_costs

SETTINGS = (CLEAN, Setting("PatchMask", 0.8), Setting("BlockMask", 112), Setting("OnlyOne", 112))
STEPS = "(a) most steps in training"
MEMORY = "(b) memory at inference"
FIXED = "(c) fixed steps at inference"
DYNAMIC = "dynamic"
PAPER_MAX_STEPS = 5
MOST_FIXED = 5
# Table 3 of the paper, on ImageNet-1K: top-1 in the order of the settings
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    STEPS: {"4": (80.0, 43.7, 78.4, 68.1), "5": (80.3, 44.6, 78.9, 69.2), "6": (80.4, 44.8, 79.0, 69.4)},
    MEMORY: {"vq": (80.3, 44.6, 78.9, 69.2), "continuous": (80.2, 37.8, 75.6, 62.7)},
    FIXED: {
        "1": (78.0, 31.4, 73.5, 58.3),
        "2": (79.2, 38.9, 76.8, 64.1),
        "3": (80.2, 43.1, 78.5, 68.0),
        "4": (80.3, 44.0, 78.8, 68.8),
        "5": (80.3, 44.2, 78.8, 69.0),
        DYNAMIC: (80.3, 44.6, 78.9, 69.2),
    },
}
NAMED = {STEPS: "at most {}", MEMORY: "{}", FIXED: "T = {}"}  # variants, in tables
COMPARED = {
    MEMORY: [("vq", "continuous", "Without the quantiser"), ("vq", "off", "Without the memory")],
    FIXED: [("1", "5", "From 1 fixed step to 5"), ("5", DYNAMIC, "From 5 fixed steps to dynamic halting")],
}


class Case(NamedTuple):
    """A row of a part: a subject under some switches, and the training run it is of."""

    part: str
    variant: str
    subject: Subject
    run: str


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Accuracy of every variant in the paper's four settings."""
    found = material.classifiers()
    if not found.prisms:
        raise Inapplicable("ablations are of PRISM, and there is none among the checkpoints")
    others = [s.name for s in found.subjects if s not in found.prisms]
    left_out = skipped(others, "it has neither steps nor a memory")
    prisms = [subject for subject in found.prisms if subject.name == found.prisms[0].name]
    further = dict.fromkeys(subject.name for subject in found.prisms if subject not in prisms)
    left_out += skipped(list(further), "one model is ablated, the first")
    steps = {subject.run: _network(subject).max_steps for subject in prisms}
    fewest_first = sorted(prisms, key=lambda subject: steps[subject.run])
    cases = [Case(STEPS, str(steps[subject.run]), subject, subject.run) for subject in fewest_first]
    if len({*steps.values()}) < 2:
        cases, left_out = [], [*left_out, *skipped([STEPS], "all checkpoints were trained with as many")]
    base = PAPER_MAX_STEPS if PAPER_MAX_STEPS in steps.values() else next(iter(steps.values()))
    for subject in (s for s in prisms if steps[s.run] == base):
        network = _network(subject)
        if network.memory == "vq":
            cases += [_case(MEMORY, mode, subject, memory=mode) for mode in ("vq", "continuous", "off")]
        else:
            left_out += skipped([MEMORY], f"{subject.run} was trained without a quantiser")
        cases += [_case(FIXED, str(t), subject, fixed_steps=t) for t in range(1, MOST_FIXED + 1)]
        cases.append(_case(FIXED, DYNAMIC, subject, fixed_steps=None))
    subjects = {(case.subject.name, case.subject.run): case.subject for case in cases}
    rows, _ = material.benchmark(found.pictures, SETTINGS, out).run(list(subjects.values()), progress)
    add_costs(rows, list(subjects.values()), found.pictures)
    return {"ablation": [_row(case, row) for case in cases for row in rows if _is_of(row, case)], SKIPPED: left_out}


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["ablation"]
    sections = []
    for part in column(rows, "part"):
        own = [row for row in rows if row["part"] == part]
        sections.append(Section("" if sections else STUDY.title, _words(part, own), _table(part, own)))
    caption = "Accuracy of each variant; colours are settings. Dashed: the paper's, on ImageNet."
    return [*sections, Section("", caption, save(figure(rows), out / "ablation.png"))]


def figure(rows: Rows) -> Figure:
    parts = column(rows, "part")
    sheet = Figure(figsize=(4.4 * len(parts), 3.9), layout="constrained")
    for axis, part in zip(sheet.subplots(1, len(parts), sharey=True, squeeze=False)[0], parts, strict=True):
        own = [row for row in rows if row["part"] == part]
        found, variants = means(own, ["variant", "setting"], "top-1"), column(own, "variant")
        published = {variant: scores for variant, scores in PUBLISHED[part].items() if variant in variants}
        for number, setting in enumerate(SETTINGS):
            look: dict[str, Any] = dict(color=COLOURS[number], marker=MARKERS[number])
            axis.plot(variants, [found[variant, setting.name] for variant in variants], **look)
            axis.plot([*published], [scores[number] for scores in published.values()], **(look | PAPER))
        axis.set(title=part)
        axis.grid(alpha=0.3)
    sheet.axes[0].set(ylabel="top-1 accuracy, %", ylim=(0, 102))
    ours = [
        Line2D([], [], color=COLOURS[number], marker=MARKERS[number], label=setting.name)
        for number, setting in enumerate(SETTINGS)
    ]
    theirs = Line2D([], [], color="#444444", marker="o", label="the same in the paper, ImageNet", **PAPER)
    sheet.legend(handles=[*ours, theirs], loc="outside lower center", ncols=5, frameon=False)
    return sheet


def _table(part: str, rows: Rows) -> Rows:
    scores = grouped(rows, ["variant", "setting"], "top-1")
    costs = means([row for row in rows if row["setting"] == CLEAN.name], ["variant"], "GMAC")
    ours = [
        {part: NAMED[part].format(variant), "GMAC clean": f"{costs[variant,]:.3g}"}
        | {setting.name: with_deviation(scores[variant, setting.name]) for setting in SETTINGS}
        for variant in column(rows, "variant")
    ]
    theirs = [
        {part: f"{NAMED[part].format(variant)} (paper, ImageNet)", "GMAC clean": ""}
        | {setting.name: f"{score:.1f}" for setting, score in zip(SETTINGS, scores, strict=True)}
        for variant, scores in PUBLISHED[part].items()
    ]
    return [*ours, *theirs]


def _words(part: str, rows: Rows) -> str:
    """The comparisons that the paper makes, in points."""
    found, variants = means(rows, ["variant", "setting"], "top-1"), column(rows, "variant")
    whole = [(variants[0], variants[-1], f"From {variants[0]} to {variants[-1]} steps at most in training")]
    said = []
    for before, after, what in COMPARED.get(part, whole):
        changes = [found[after, s.name] - found[before, s.name] for s in SETTINGS]
        parts = ", ".join(f"{s.name} {change:+.1f}" for s, change in zip(SETTINGS, changes, strict=True))
        published, theirs = PUBLISHED[part], ""
        if before in published and after in published:
            gains = (b - a for a, b in zip(published[before], published[after], strict=True))
            theirs = f" (the paper's, on ImageNet: {', '.join(f'{gain:+.1f}' for gain in gains)})"
        said.append(f"{what}, accuracy changes by points: {parts}{theirs}.")
    return " ".join(said)


def _case(part: str, variant: str, subject: Subject, **switches: Any) -> Case:
    network = _network(subject)
    ((name, value),) = switches.items()
    if getattr(network, name) == value:  # as it is: measured once for all parts
        return Case(part, variant, subject, subject.run)
    twin = subject._replace(run=f"{subject.run}, {name} {value}", model=switched(network, **switches))
    return Case(part, variant, twin, subject.run)


def _is_of(row: Any, case: Case) -> bool:
    return (row["model"], row["run"]) == (case.subject.name, case.subject.run)


def _row(case: Case, row: dict[str, Any]) -> dict[str, Any]:
    return {"part": case.part, "variant": case.variant, **row, "run": case.run}


def _network(subject: Subject) -> Prism:
    assert isinstance(subject.model, Prism)
    return subject.model


STUDY = Study(
    "ablation",
    "Ablations",
    "what are more steps in training, the memory, and dynamic halting worth under occlusion?",
    "Table 3",
    "PRISM classifiers trained with different max_steps",
    "ablated classifiers",
    measure,
    report,
)
