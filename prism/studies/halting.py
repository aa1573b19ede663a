"""Figure 3A: does PRISM take more steps when more is hidden?"""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from prism.occlusion.benchmark import CLEAN, Setting
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.study import (
    MARKERS,
    SKIPPED,
    STAGE_COLOURS,
    STAGES,
    Progress,
    Section,
    Study,
    Tables,
    column,
    means,
    save,
    shown,
    skipped,
)

BLOCKS = (CLEAN, Setting("BlockMask", 56), Setting("BlockMask", 112))
PATCHES = tuple(Setting("PatchMask", round(0.1 * tenth, 1)) for tenth in range(1, 10))
QUICK_PATCHES = PATCHES[1::2]
# section 4.5 of the paper: mean steps of stage 3 on ImageNet
PUBLISHED = {"clean": 3.73, "BlockMask56": 4.18, "BlockMask112": 4.92}
PUBLISHED_STAGE = 3


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Mean steps of each stage, and their deviation over pictures, in every setting."""
    found = material.classifiers()
    if not found.prisms:
        raise Inapplicable("only PRISM takes steps, and there is none among the checkpoints")
    settings = (*BLOCKS, *(QUICK_PATCHES if material.quick else PATCHES))
    _, predictions = material.benchmark(found.pictures, settings, out).run(found.prisms, progress)
    most = {(s.name, s.run): s.model.max_steps for s in found.prisms}
    rows = [
        {
            "model": model,
            "run": run,
            "most steps": most[model, run],
            "setting": setting,
            "hidden": Setting.parse(setting).hidden_share,
            "stage": stage,
            "steps": float(found.steps[:, stage - 1].mean()),
            "deviation": float(found.steps[:, stage - 1].std()),
            "images": len(found.steps),
        }
        for (model, run, setting, _, _), found in predictions.items()
        for stage in STAGES
    ]
    others = [s.name for s in found.subjects if s not in found.prisms]
    return {"halting": rows, SKIPPED: skipped(others, "it takes no steps")}


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["halting"]
    drawn = save(figure(rows), out / "halting.png")
    return [Section(STUDY.title, _words(rows), shown(_table(rows))), Section("", _caption(rows), drawn)]


def figure(rows: Rows) -> Figure:
    """A row a model: bars of the stages, clean and with blocks hidden; and lines against the share of patches."""
    models = column(rows, "model")
    sheet = Figure(figsize=(10, 3.9 * len(models)), layout="constrained")
    for (bars, lines), model in zip(sheet.subplots(len(models), 2, squeeze=False), models, strict=True):
        own = [row for row in rows if row["model"] == model]
        found = means(own, ["setting", "stage"], "steps")
        most = max(row["most steps"] for row in own)
        for stage in STAGES:
            colour = STAGE_COLOURS[stage]
            at = [place + 0.2 * (stage - 2.5) for place in range(len(BLOCKS))]
            bars.bar(at, [found[s.name, stage] for s in BLOCKS], 0.18, color=colour, label=f"stage {stage}")
            if stage == PUBLISHED_STAGE:
                bars.plot(
                    at,
                    [PUBLISHED[s.name] for s in BLOCKS],
                    linestyle="",
                    marker="D",
                    markerfacecolor="white",
                    markeredgecolor=colour,
                    label=f"stage {stage} (paper, ImageNet, at most 5)",
                )
            patches = sorted(_patches(found, stage))
            lines.plot(*zip(*patches, strict=True), color=colour, marker=MARKERS[stage - 1], label=f"stage {stage}")
        bars.set_xticks(range(len(BLOCKS)), [s.name for s in BLOCKS])
        bars.set(title=model, ylabel="mean steps", ylim=(0, max(5.4, most + 0.4)))
        bars.axhline(most, color="#888888", linewidth=1, linestyle=":")
        lines.set(title=f"{model}, PatchMask", xlabel="share of cells hidden", ylim=(0, most + 0.4))
        lines.axhline(most, color="#888888", linewidth=1, linestyle=":")
        for axis in (bars, lines):
            axis.grid(alpha=0.3, axis="y")
    handles, labels = sheet.axes[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda place: "paper" in labels[place])
    sheet.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=5, frameon=False
    )
    return sheet


def _patches(found: dict[tuple[Any, ...], float], stage: int) -> list[tuple[float, float]]:
    return [
        (Setting.parse(setting).hidden_share, steps)
        for (setting, of), steps in found.items()
        if of == stage and (setting == CLEAN.name or setting.startswith("PatchMask"))
    ]


def _table(rows: Rows) -> Rows:
    ours = [
        {"model": model, "setting": setting} | {f"stage {stage}": found[setting, stage] for stage in STAGES}
        for model in column(rows, "model")
        for found in [means([row for row in rows if row["model"] == model], ["setting", "stage"], "steps")]
        for setting in column(rows, "setting")
    ]
    theirs = [
        {"model": "PRISM (paper, ImageNet)", "setting": setting}
        | {f"stage {stage}": steps if stage == PUBLISHED_STAGE else None for stage in STAGES}
        for setting, steps in PUBLISHED.items()
    ]
    return [*ours, *theirs]


def _words(rows: Rows) -> str:
    said = []
    for model in column(rows, "model"):
        own = [row for row in rows if row["model"] == model]
        found = means(own, ["setting", "stage"], "steps")
        busiest = max(STAGES, key=lambda stage, found=found: found[CLEAN.name, stage])
        said.append(
            f"On whole pictures {model}, which may take {max(row['most steps'] for row in own)} steps, takes "
            f"{', '.join(f'{found[CLEAN.name, stage]:.2f}' for stage in STAGES)} in its four stages, most in stage "
            f"{busiest}."
        )
        total = {setting: sum(found[setting, stage] for stage in STAGES) for setting in column(own, "setting")}
        changes = ", ".join(
            f"{setting.name} {total[setting.name] - total[CLEAN.name]:+.2f}"
            for setting in (*BLOCKS[1:], PATCHES[-2])
            if setting.name in total
        )
        said.append(f"Over all stages the steps change with what is hidden: {changes}.")
    said.append(
        "The paper's model (ImageNet, at most 5 steps) takes most in stage 3: 3.73 on whole pictures, 4.18 with "
        "BlockMask56 and 4.92 with BlockMask112; the diamonds are these published values."
    )
    return " ".join(said)


def _caption(rows: Rows) -> str:
    return f"Mean steps of {rows[0]['images']} pictures. The dotted line is the most that a stage may take."


STUDY = Study(
    "halting",
    "Steps and occlusion",
    "does PRISM take more steps when more is hidden, and in which stages?",
    "Figure 3A",
    "a PRISM classifier",
    "classifiers",
    measure,
    report,
)
