"""What does accuracy cost? One trained PRISM, its halting made more or less eager, against GMACs and measured time.

The sweep shifts the threshold of the halting units, caps their steps, or fixes the steps altogether. Time is that of
the steps really taken: each case is forced to the mean steps that its pictures took, and all cases are timed in turn.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from prism.metrics import speed
from prism.model.backbone import Prism
from prism.occlusion.benchmark import CLEAN, Setting, Subject, step_columns
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.study import MARKERS, SKIPPED, Progress, Section, Study, Tables, column, means, save, shown, skipped
from prism.studies.variants import switched
from prism.tasks.classification.evaluate import add_costs

SETTINGS = (CLEAN, Setting("PatchMask", 0.6), Setting("BlockMask", 112))
BIASES = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)
QUICK_BIASES = (-2.0, -0.5, 0.0, 0.5, 2.0)
SHIFTED, CAPPED, FIXED, WHOLE = "shifted threshold", "capped steps", "fixed steps", "as it is"
REPEATS, QUICK_REPEATS = 10, 3
BATCH = 16  # that is timed


class Case(NamedTuple):
    sweep: str
    value: float
    subject: Subject
    run: str  # of training


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Accuracy, mean steps, GMACs and images a second of every case in every setting."""
    found = material.classifiers()
    if not found.prisms:
        raise Inapplicable("only PRISM's cost can be chosen, and there is none among the checkpoints")
    subjects = _one_run_each(found.subjects)
    cases = [case for subject in subjects for case in _cases(subject, material.quick)]
    judged = {(case.subject.name, case.subject.run): case.subject for case in cases}
    rows, _ = material.benchmark(found.pictures, SETTINGS, out).run(list(judged.values()), progress)
    add_costs(rows, list(judged.values()), found.pictures)
    side = found.pictures[0][0].shape[-1]
    steps = dict.fromkeys(name for row in rows for name in step_columns(row))
    rates = _images_a_second(rows, judged, side, QUICK_REPEATS if material.quick else REPEATS, progress)
    return {
        "cost": [
            {
                "model": row["model"],
                "run": case.run,
                "sweep": case.sweep,
                "value": case.value,
                "setting": row["setting"],
            }
            | {name: row.get(name) for name in ("images", "top-1", "low", "high", *steps, "GMAC")}
            | {
                "batch": BATCH,
                "px": side,
                "threads": torch.get_num_threads(),
                **rates[case.subject.name, case.subject.run, row["setting"]],
            }
            for case in cases
            for row in rows
            if (row["model"], row["run"]) == (case.subject.name, case.subject.run)
        ],
        SKIPPED: skipped(
            [f"a further run of {s.name}" for s in found.subjects if s not in subjects], "one run of a model is swept"
        ),
    }


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["cost"]
    caption = (
        "Accuracy against multiply-accumulates and against measured time, a row a setting. Each point is the same "
        "weights with other halting; the ringed one is as trained."
    )
    return [
        Section(STUDY.title, _words(rows), shown(_table(rows))),
        Section("", caption, save(figure(rows), out / "cost.png")),
    ]


def figure(rows: Rows) -> Figure:
    settings = column(rows, "setting")
    sheet = Figure(figsize=(10, 3.1 * len(settings)), layout="constrained")
    axes = sheet.subplots(len(settings), 2, squeeze=False, sharex="col")
    lines = list(dict.fromkeys((row["model"], row["sweep"]) for row in rows))
    for line, setting in zip(axes, settings, strict=True):
        for axis, cost in zip(line, (_gmac, _milliseconds), strict=True):
            for number, (model, sweep) in enumerate(lines):
                own = [r for r in rows if (r["model"], r["sweep"], r["setting"]) == (model, sweep, setting)]
                points = [(cost(row), row["top-1"]) for row in sorted(own, key=lambda row: row["value"])]
                look = dict(color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)])
                axis.plot(*zip(*points, strict=True), label=f"{model}, {sweep}", alpha=0.85, **look)
                trained = [(cost(r), r["top-1"]) for r in own if sweep == SHIFTED and r["value"] == 0]
                for point in trained:
                    axis.plot(*point, "o", markersize=12, markerfacecolor="none", markeredgecolor="#222222")
            axis.grid(alpha=0.3)
        line[0].set(ylabel=f"{setting}\ntop-1 accuracy, %")
    axes[-1][0].set(xlabel="GMAC an image")
    axes[-1][1].set(xlabel=f"milliseconds an image, batches of {rows[0]['batch']}, CPU threads: {rows[0]['threads']}")
    handles, labels = sheet.axes[0].get_legend_handles_labels()
    sheet.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return sheet


def _cases(subject: Subject, quick: bool) -> list[Case]:
    network = subject.model
    if not isinstance(network, Prism):
        return [Case(WHOLE, 0, subject, subject.run)]
    most = network.max_steps

    def twin(sweep: str, value: float, **switches: Any) -> Case:
        changed = subject._replace(run=f"{subject.run}, {sweep} {value:g}", model=switched(network, **switches))
        return Case(sweep, value, changed, subject.run)

    return [
        *(twin(SHIFTED, bias, halting_bias=bias) for bias in (QUICK_BIASES if quick else BIASES)),
        *(twin(CAPPED, cap, max_steps=cap) for cap in range(1, most + 1)),
        *(twin(FIXED, steps, fixed_steps=steps) for steps in range(1, most + 1)),
    ]


def _one_run_each(subjects: list[Subject]) -> list[Subject]:
    return list({subject.name: subject for subject in reversed(subjects)}.values())[::-1]


def _images_a_second(
    rows: list[dict[str, Any]], judged: dict[tuple[str, str], Subject], side: int, repeats: int, progress: Progress
) -> dict[tuple[str, str, str], dict[str, float]]:
    """By model, run and setting. A case whose halting is its own is forced to the mean steps that it took there."""
    models, forced, keys = {}, {}, {}
    for row in rows:
        network, name = judged[row["model"], row["run"]].model, f"{row['model']} {row['run']}"
        if isinstance(network, Prism) and not network.fixed_steps:
            profile = [round(row[step], 2) for step in step_columns(row)]
            name = f"{row['model']} at {profile}"  # cases that take the same steps take the same time
            if name not in models:
                network, forced[name] = switched(network), profile
        models.setdefault(name, network.cpu())  # what is timed is a CPU
        keys[row["model"], row["run"], row["setting"]] = name
    timed = speed.measure(models, forced, [side], [BATCH], torch.float32, False, repeats, progress)
    found = {row["model"]: {"images/s": row["images/s"], "spread": row["spread"]} for row in timed}
    return {key: found[name] for key, name in keys.items()}


def _gmac(row: Any) -> float:
    return row["GMAC"]


def _milliseconds(row: Any) -> float:
    return 1000 / row["images/s"]


def _table(rows: Rows) -> Rows:
    """Means over the settings; all of them are in the CSV."""
    by = ["model", "sweep", "value"]
    steps = dict.fromkeys(name for row in rows for name in step_columns(row))
    figures = {name: means(rows, by, name) for name in ("top-1", "GMAC", "images/s", *steps)}
    return [
        {"model": key[0], "sweep": key[1], "value": f"{key[2]:g}" if key[1] != WHOLE else ""}
        | {name: found.get(key) if name != "GMAC" else f"{found[key]:.3g}" for name, found in figures.items()}
        for key in figures["top-1"]
    ]


def _words(rows: Rows) -> str:
    said = ["The table gives means over the settings."]
    by = ["sweep", "value"]
    for model in column(rows, "model"):
        own = [row for row in rows if row["model"] == model]
        score, cost, rate = (means(own, by, name) for name in ("top-1", "GMAC", "images/s"))
        if (SHIFTED, 0) not in score:
            alone = (WHOLE, 0)
            said.append(f"{model} has {score[alone]:.1f} % at {cost[alone]:.3g} GMAC and {rate[alone]:.0f} images/s.")
            continue
        shifted = [key for key in score if key[0] == SHIFTED]
        eager, patient = min(shifted, key=cost.__getitem__), max(shifted, key=cost.__getitem__)
        trained, cheapest, dearest = (
            f"{score[key]:.1f} % at {cost[key]:.3g} GMAC and {rate[key]:.0f} images/s"
            for key in ((SHIFTED, 0), eager, patient)
        )
        said.append(
            f"As trained, {model} has {trained}; with the threshold at which it halts shifted furthest, {cheapest} on "
            f"the eager side and {dearest} on the patient one."
        )
        fixed = {key: value for key, value in score.items() if key[0] == FIXED}
        as_cheap = [key for key in fixed if cost[key] <= cost[SHIFTED, 0]]
        if as_cheap:
            best = max(as_cheap, key=lambda key, fixed=fixed: fixed[key])
            said.append(
                f"The best number of fixed steps that costs no more than dynamic halting is {best[1]:g}: "
                f"{fixed[best]:.1f} %, {score[SHIFTED, 0] - fixed[best]:+.1f} points for dynamic halting."
            )
    return " ".join(said)


STUDY = Study(
    "cost",
    "Accuracy and its cost",
    "what do steps cost in GMACs and in measured time, and what accuracy do they buy?",
    "",
    "a PRISM classifier, and baselines to compare",
    "classifiers",
    measure,
    report,
)
