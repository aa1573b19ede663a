"""Beyond the paper: what are memory, steps and PRISM's lead worth at each image size?

A network is trained once for each size. At 64 px the cells of a PatchMask are no larger than a token, and the last
stages have hardly more tokens than slots: the trend tells what to expect at sizes that nobody has trained here.
"""

from collections import defaultdict
from dataclasses import replace

from prism.analysis.variants import switched
from prism.model.backbone import Prism
from prism.model.metadata import read_metadata
from prism.studies import study as s

AS_TRAINED, NO_MEMORY, ONE_STEP = "as trained", "memory off", "one step"
SWITCHES = {NO_MEMORY: {"memory": "off"}, ONE_STEP: {"fixed_steps": 1}}
LOST = {NO_MEMORY: "lost without the memory", ONE_STEP: "lost with one step"}


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Accuracy in the paper's settings of every checkpoint at its own size, and of PRISM's under its switches."""
    by_size: dict[int, list[str]] = defaultdict(list)
    for file in inputs.files("classification"):
        by_size[read_metadata(file).preprocessing.get("size", 224)].append(str(file))
    if len(by_size) < 2:
        raise s.Inapplicable(f"all checkpoints were trained at {next(iter(by_size))} px; pass some of another size")
    rows = []
    for size in sorted(by_size):
        found = replace(inputs, checkpoints=tuple(by_size[size])).classifiers()
        cases = [
            s.Case({"size": size, "variant": variant}, twin, subject.run)
            for subject in found.subjects
            for variant, twin in _variants(subject).items()
        ]
        measured = s.measure_cases(inputs, found.images, s.PAPER_SETTINGS, cases, out / str(size), progress)
        rows += [{**case.columns, **row, "run": case.run} for case, row in measured]
    return {"resolution": rows}


def _variants(subject: s.Subject) -> dict[str, s.Subject]:
    network = subject.model
    if not isinstance(network, Prism):
        return {AS_TRAINED: subject}
    return {AS_TRAINED: subject} | {
        name: subject._replace(run=f"{subject.run}, {name}", model=switched(network, **switch))
        for name, switch in SWITCHES.items()
    }


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["resolution"]
    caption = "Mean accuracy over the occluded settings, and what it loses without the memory or with one step."
    return s.told(_words(rows), _table(rows), caption, figure(rows), out / "resolution.png")


def occluded_means(rows: s.Rows) -> s.Means:
    """Accuracy by model, variant and size, averaged over all settings but the clean one."""
    return s.means([row for row in rows if row["setting"] != s.CLEAN.name], ["model", "variant", "size"], "top-1")


def figure(rows: s.Rows) -> s.Figure:
    """Accuracy against size, one line per model; and PRISM's losses under its switches."""
    found, sizes = occluded_means(rows), s.column(rows, "size")
    sheet, (accuracy, losses) = s.panels(2, 4.5, 3.9, sharey=False)
    for number, model in enumerate(s.column(rows, "model")):
        own = [size for size in sizes if (model, AS_TRAINED, size) in found]
        accuracy.plot(own, [found[model, AS_TRAINED, size] for size in own], label=model, **s.style(number))
        for switch, line in zip(LOST, ("-", "--"), strict=True):
            if any(key[:2] == (model, switch) for key in found):
                lost = [found[model, AS_TRAINED, size] - found[model, switch, size] for size in own]
                losses.plot(own, lost, label=f"{model}, {LOST[switch]}", **s.style(number) | {"linestyle": line})
    accuracy.set(ylabel="mean top-1 under occlusion, %")
    losses.set(ylabel="points of it that are lost")
    losses.axhline(0, color="#888888", linewidth=1)
    for axis in (accuracy, losses):
        axis.set(xlabel="side of the image, px", xticks=sizes)
        axis.legend(frameon=False)
    return sheet


def _table(rows: s.Rows) -> s.Rows:
    scores = s.grouped(rows, ["size", "model", "variant", "setting"], "top-1")
    return [
        {"size": size, "model": model, "variant": variant}
        | {setting.name: s.with_deviation(scores[size, model, variant, setting.name]) for setting in s.PAPER_SETTINGS}
        for size, model, variant in dict.fromkeys((row["size"], row["model"], row["variant"]) for row in rows)
    ]


def _words(rows: s.Rows) -> str:
    found = occluded_means(rows)
    said = []
    for model in s.column(s.where(rows, variant=NO_MEMORY), "model"):
        for switch, words in LOST.items():
            changes = [
                f"{found[model, AS_TRAINED, size] - found[model, switch, size]:.1f} at {size} px"
                for size in s.column(s.where(rows, model=model), "size")
            ]
            said.append(f"Points that {model} has {words}, mean of the occluded settings: {s.listed(changes)}.")
    return " ".join(said)
