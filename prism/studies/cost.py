"""Beyond the paper: what do steps cost in GMACs and in measured time, and how much accuracy do they gain?

One trained PRISM, its halting made more or less eager. Time is that of the steps really taken: each case is forced to
the mean steps that its images took, and all cases are timed in turn.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from prism.analysis.cost import AS_IS, FIXED, SHIFTED, images_per_second, sweeps
from prism.model.backbone import Prism
from prism.studies import study as s

SETTINGS = (s.CLEAN, s.Setting("PatchMask", 0.6), s.Setting("BlockMask", 112))
BIASES = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)
QUICK_BIASES = (-2.0, -0.5, 0.0, 0.5, 2.0)
REPEATS, QUICK_REPEATS = 10, 3
BATCH = 16  # that is timed
AS_TRAINED = SHIFTED, 0


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Accuracy, mean steps, GMACs and images per second of every case in every setting."""
    found = inputs.prisms("only PRISM can trade accuracy for cost")
    swept = list({subject.name: subject for subject in reversed(found.subjects)}.values())[::-1]
    biases = QUICK_BIASES if inputs.quick else BIASES
    cases = [_case(subject, *variant) for subject in swept for variant in sweeps(subject.model, biases)]
    measured = s.measure_cases(inputs, found.images, SETTINGS, cases, out, progress)
    side = found.images[0][0].shape[-1]
    rates = _rates(measured, side, QUICK_REPEATS if inputs.quick else REPEATS, progress)
    timing = {"batch": BATCH, "px": side, "threads": torch.get_num_threads()}
    rows = [
        {"model": row["model"], "run": case.run, **case.columns, "setting": row["setting"]}
        | {name: row[name] for name in ("images", "top-1", "low", "high", *s.step_columns(row), "GMAC")}
        | timing
        | rate
        for (case, row), rate in zip(measured, rates, strict=True)
    ]
    again = [f"another run of {subject.name}" for subject in found.subjects if subject not in swept]
    return {"cost": rows, s.SKIPPED: s.skipped(again, "one run per model is swept")}


def _case(subject: s.Subject, sweep: str, value: float, model: Any) -> s.Case:
    run = subject.run if sweep == AS_IS else f"{subject.run}, {sweep} {value:g}"
    return s.Case({"sweep": sweep, "value": value}, subject._replace(run=run, model=model), subject.run)


def _rates(
    measured: Sequence[tuple[s.Case, Any]], side: int, repeats: int, progress: s.Progress
) -> list[dict[str, float]]:
    """Of each case and setting. A case whose halting is its own is forced to the mean steps that it took there."""
    models, forced, names = {}, {}, []
    for case, row in measured:
        network, name = case.subject.model, f"{row['model']} {row['run']}"
        if isinstance(network, Prism) and not network.fixed_steps:
            profile = [round(row[name], 2) for name in s.step_columns(row)]
            name = f"{row['model']} at {profile}"  # cases that take the same steps take the same time
            forced[name] = profile
        models.setdefault(name, network)
        names.append(name)
    found = images_per_second(models, forced, side, BATCH, repeats, progress)
    return [found[name] for name in names]


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["cost"]
    caption = (
        "Accuracy against multiply-accumulates and against measured time, one row per setting. Each point is the same "
        "weights with different halting; the ringed one is as trained."
    )
    return s.told(_words(rows), s.shown(_table(rows)), caption, figure(rows), out / "cost.png")


def figure(rows: s.Rows) -> s.Figure:
    settings = s.column(rows, "setting")
    sheet = s.Figure(figsize=(10, 3.1 * len(settings)), layout="constrained")
    axes = sheet.subplots(len(settings), 2, squeeze=False, sharex="col")
    costs: list[Callable[[Any], float]] = [lambda row: row["GMAC"], lambda row: 1000 / row["images/s"]]
    lines = list(dict.fromkeys((row["model"], row["sweep"]) for row in rows))
    for line, setting in zip(axes, settings, strict=True):
        for axis, cost in zip(line, costs, strict=True):
            for number, (model, sweep) in enumerate(lines):
                own = sorted(s.where(rows, model=model, sweep=sweep, setting=setting), key=lambda row: row["value"])
                points = {row["value"]: (cost(row), row["top-1"]) for row in own}
                axis.plot(*zip(*points.values(), strict=True), label=f"{model}, {sweep}", alpha=0.85, **s.style(number))
                if sweep == SHIFTED and 0 in points:
                    axis.plot(*points[0], "o", markersize=12, markerfacecolor="none", markeredgecolor="#222222")
            axis.grid(alpha=0.3)
        line[0].set(ylabel=f"{setting}\ntop-1 accuracy, %")
    axes[-1][0].set(xlabel="GMAC per image")
    axes[-1][1].set(xlabel=f"ms per image, batches of {rows[0]['batch']}, {rows[0]['threads']} CPU threads")
    s.legend_below(sheet, 2, size=9)
    return sheet


def _steps(rows: s.Rows) -> list[str]:
    """Columns of mean steps, of whichever row has them."""
    return list(dict.fromkeys(name for row in rows for name in s.step_columns(row)))


def _table(rows: s.Rows) -> s.Rows:
    """Means over the settings; all of them are in the CSV."""
    by = ["model", "sweep", "value"]
    figures = {name: s.means(rows, by, name) for name in ("top-1", "GMAC", "images/s", *_steps(rows))}
    return [
        {"model": key[0], "sweep": key[1], "value": f"{key[2]:g}" if key[1] != AS_IS else ""}
        | {name: found.get(key) if name != "GMAC" else f"{found[key]:.3g}" for name, found in figures.items()}
        for key in figures["top-1"]
    ]


def _words(rows: s.Rows) -> str:
    said = ["The table gives means over the settings."]
    for model in s.column(rows, "model"):
        own = s.where(rows, model=model)
        score, cost, rate = (s.means(own, ["sweep", "value"], name) for name in ("top-1", "GMAC", "images/s"))
        told = {key: f"{score[key]:.1f} % at {cost[key]:.3g} GMAC and {rate[key]:.0f} images/s" for key in score}
        if AS_TRAINED not in score:
            said.append(f"{model} reaches {told[AS_IS, 0]}.")
            continue
        shifted = [key for key in score if key[0] == SHIFTED]
        eager, patient = min(shifted, key=cost.__getitem__), max(shifted, key=cost.__getitem__)
        said.append(
            f"As trained, {model} reaches {told[AS_TRAINED]}. With the halting threshold shifted as far as possible, "
            f"it reaches {told[eager]} (halting early) and {told[patient]} (halting late)."
        )
        as_cheap = [key for key in score if key[0] == FIXED and cost[key] <= cost[AS_TRAINED]]
        if as_cheap:
            best = max(as_cheap, key=score.__getitem__)
            said.append(
                f"The best number of fixed steps that costs no more than dynamic halting is {best[1]:g}: "
                f"{score[best]:.1f} %, so dynamic halting gains {score[AS_TRAINED] - score[best]:+.1f} points."
            )
    return " ".join(said)
