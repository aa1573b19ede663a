"""Table 3: what do more steps in training, the memory, and dynamic halting gain under occlusion?

(a) compares trainings; (b) and (c) are switches of one training at inference.
"""

from typing import Any

from matplotlib.lines import Line2D

from prism.analysis.variants import switched
from prism.model.backbone import Prism
from prism.studies import study as s

SETTINGS = (s.CLEAN, s.Setting("PatchMask", 0.8), s.Setting("BlockMask", 112), s.Setting("OnlyOne", 112))
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


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Accuracy of every variant in the paper's four settings."""
    found = inputs.prisms("only PRISM has parts to ablate")
    left_out = s.skipped(found.others, "it has neither steps nor a memory")
    prisms = [subject for subject in found.prisms if subject.name == found.prisms[0].name]
    further = [subject.name for subject in found.prisms if subject not in prisms]
    left_out += s.skipped(further, "only the first model is ablated")
    steps = {subject.run: _network(subject).max_steps for subject in prisms}
    cases = []
    if len({*steps.values()}) > 1:
        fewest_first = sorted(prisms, key=lambda subject: steps[subject.run])
        cases = [_case(STEPS, str(most := steps[subject.run]), subject, max_steps=most) for subject in fewest_first]
    else:
        left_out += s.skipped([STEPS], "all checkpoints were trained with the same number")
    base = PAPER_MAX_STEPS if PAPER_MAX_STEPS in steps.values() else next(iter(steps.values()))
    for subject in (subject for subject in prisms if steps[subject.run] == base):
        if _network(subject).memory == "vq":
            cases += [_case(MEMORY, mode, subject, memory=mode) for mode in ("vq", "continuous", "off")]
        else:
            left_out += s.skipped([MEMORY], f"{subject.run} was trained without a quantiser")
        cases += [_case(FIXED, str(t), subject, fixed_steps=t) for t in range(1, MOST_FIXED + 1)]
        cases.append(_case(FIXED, DYNAMIC, subject, fixed_steps=None))
    measured = s.measure_cases(inputs, found.images, SETTINGS, cases, out, progress)
    return {"ablation": [{**case.columns, **row, "run": case.run} for case, row in measured], s.SKIPPED: left_out}


def _case(part: str, variant: str, subject: s.Subject, **switches: Any) -> s.Case:
    network, twin = _network(subject), subject
    ((name, value),) = switches.items()
    if getattr(network, name) != value:  # as it is, it is measured once for all parts
        twin = subject._replace(run=f"{subject.run}, {name} {value}", model=switched(network, **switches))
    return s.Case({"part": part, "variant": variant}, twin, subject.run)


def _network(subject: s.Subject) -> Prism:
    assert isinstance(subject.model, Prism)
    return subject.model


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["ablation"]
    sections = []
    for part in s.column(rows, "part"):
        own = s.where(rows, part=part)
        sections.append(s.Section("", _words(part, own), _table(part, own)))
    caption = "Accuracy of each variant; colours are settings. Dashed: the paper's values on ImageNet."
    return [*sections, s.Section("", caption, s.save(figure(rows), out / "ablation.png"))]


def figure(rows: s.Rows) -> s.Figure:
    parts = s.column(rows, "part")
    sheet, axes = s.panels(len(parts), 4.4, 3.9)
    for axis, part in zip(axes, parts, strict=True):
        own = s.where(rows, part=part)
        found, variants = s.means(own, ["variant", "setting"], "top-1"), s.column(own, "variant")
        published = {variant: scores for variant, scores in PUBLISHED[part].items() if variant in variants}
        for number, setting in enumerate(SETTINGS):
            axis.plot(variants, [found[variant, setting.name] for variant in variants], **s.style(number))
            axis.plot([*published], [scores[number] for scores in published.values()], **(s.style(number) | s.PAPER))
        axis.set(title=part)
    axes[0].set(ylabel="top-1 accuracy, %", ylim=(0, 102))
    ours = [Line2D([], [], label=setting.name, **s.style(number)) for number, setting in enumerate(SETTINGS)]
    theirs = Line2D([], [], color="#444444", marker="o", label="the same in the paper, ImageNet", **s.PAPER)
    s.legend_below(sheet, 5, [*ours, theirs])
    return sheet


def _table(part: str, rows: s.Rows) -> s.Rows:
    scores = s.grouped(rows, ["variant", "setting"], "top-1")
    costs = s.means(s.where(rows, setting=s.CLEAN.name), ["variant"], "GMAC")
    ours = [
        {part: NAMED[part].format(variant), "GMAC clean": f"{costs[variant,]:.3g}"}
        | {setting.name: s.with_deviation(scores[variant, setting.name]) for setting in SETTINGS}
        for variant in s.column(rows, "variant")
    ]
    theirs = [
        {part: f"{NAMED[part].format(variant)} (paper, ImageNet)", "GMAC clean": ""}
        | {setting.name: f"{score:.1f}" for setting, score in zip(SETTINGS, scores, strict=True)}
        for variant, scores in PUBLISHED[part].items()
    ]
    return [*ours, *theirs]


def _words(part: str, rows: s.Rows) -> str:
    """The comparisons that the paper makes, in points."""
    found, variants = s.means(rows, ["variant", "setting"], "top-1"), s.column(rows, "variant")
    whole = [(variants[0], variants[-1], f"From at most {variants[0]} to at most {variants[-1]} steps in training")]
    said = []
    for before, after, what in COMPARED.get(part, whole):
        changes = [found[after, setting.name] - found[before, setting.name] for setting in SETTINGS]
        parts = ", ".join(f"{setting.name} {change:+.1f}" for setting, change in zip(SETTINGS, changes, strict=True))
        published, theirs = PUBLISHED[part], ""
        if before in published and after in published:
            gains = (b - a for a, b in zip(published[before], published[after], strict=True))
            theirs = f" (in the paper, on ImageNet: {', '.join(f'{gain:+.1f}' for gain in gains)})"
        said.append(f"{what}, accuracy changes by these points: {parts}{theirs}.")
    return " ".join(said)
