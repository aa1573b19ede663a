"""Figure 3A: does PRISM take more steps when more is hidden, and in which stages?"""

from typing import Any

from prism.analysis.halting import step_statistics
from prism.studies import study as s

BLOCKS = (s.CLEAN, s.Setting("BlockMask", 56), s.Setting("BlockMask", 112))
PATCHES = tuple(s.Setting("PatchMask", round(0.1 * tenth, 1)) for tenth in range(1, 10))
QUICK_PATCHES = PATCHES[1::2]
# section 4.5 of the paper: mean steps of stage 3 on ImageNet
PUBLISHED = {"clean": 3.73, "BlockMask56": 4.18, "BlockMask112": 4.92}
PUBLISHED_STAGE = 3
GREY: dict[str, Any] = dict(color="#888888", linewidth=1, linestyle=":")


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Mean steps of each stage, and their deviation over images, in every setting."""
    found = inputs.prisms("only PRISM takes steps")
    settings = (*BLOCKS, *(QUICK_PATCHES if inputs.quick else PATCHES))
    _, predictions = inputs.benchmark(found.images, settings, out).run(found.prisms, progress)
    most = {(subject.name, subject.run): subject.model.max_steps for subject in found.prisms}
    rows = [
        {"model": model, "run": run, "most steps": most[model, run], "setting": setting}
        | {"hidden": s.hidden_share(setting)}
        | row
        for (model, run, setting, _, _), predicted in predictions.items()
        for row in step_statistics(predicted.steps)
    ]
    return {"halting": rows, s.SKIPPED: s.skipped(found.others, "it takes no steps")}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["halting"]
    published = [("PRISM", setting, PUBLISHED_STAGE, steps) for setting, steps in PUBLISHED.items()]
    caption = f"Mean steps over {rows[0]['images']} images. The dotted line is the most steps that a stage may take."
    table = s.shown(s.stage_table(rows, "steps", published))
    return s.told(_words(rows), table, caption, figure(rows), out / "halting.png")


def figure(rows: s.Rows) -> s.Figure:
    """One row per model: bars of the stages, clean and with blocks hidden; and lines against the share of patches."""
    models, stages = s.column(rows, "model"), s.column(rows, "stage")
    sheet = s.Figure(figsize=(10, 3.9 * len(models)), layout="constrained")
    for (bars, lines), model in zip(sheet.subplots(len(models), 2, squeeze=False), models, strict=True):
        own = s.where(rows, model=model)
        found = s.means(own, ["setting", "stage"], "steps")
        most = max(row["most steps"] for row in own)
        for place, stage in enumerate(stages):
            style = s.style(place)
            at = [group + 0.8 / len(stages) * (place - (len(stages) - 1) / 2) for group in range(len(BLOCKS))]
            heights = [found[setting.name, stage] for setting in BLOCKS]
            bars.bar(at, heights, 0.72 / len(stages), color=style["color"], label=f"stage {stage}")
            if stage == PUBLISHED_STAGE:
                diamond = dict(linestyle="", marker="D", markerfacecolor="white", markeredgecolor=style["color"])
                label = f"stage {stage} (paper, ImageNet, at most 5)"
                bars.plot(at, [PUBLISHED[setting.name] for setting in BLOCKS], label=label, **diamond)
            lines.plot(*zip(*_patches(found, stage), strict=True), label=f"stage {stage}", **style)
        bars.set_xticks(range(len(BLOCKS)), [setting.name for setting in BLOCKS])
        bars.set(title=model, ylabel="mean steps", ylim=(0, max(5.4, most + 0.4)))
        lines.set(title=f"{model}, PatchMask", xlabel="share of cells hidden", ylim=(0, most + 0.4))
        for axis in (bars, lines):
            axis.axhline(most, **GREY)
            axis.grid(alpha=0.3, axis="y")
    handles, _ = sheet.axes[0].get_legend_handles_labels()
    s.legend_below(sheet, 5, sorted(handles, key=lambda handle: "paper" in handle.get_label()))
    return sheet


def _patches(found: s.Means, stage: int) -> list[tuple[float, float]]:
    return sorted(
        (s.hidden_share(setting), steps)
        for (setting, of), steps in found.items()
        if of == stage and (setting == s.CLEAN.name or setting.startswith("PatchMask"))
    )


def _words(rows: s.Rows) -> str:
    said, stages = [], s.column(rows, "stage")
    for model in s.column(rows, "model"):
        own = s.where(rows, model=model)
        found = s.means(own, ["setting", "stage"], "steps")
        clean = [found[s.CLEAN.name, stage] for stage in stages]
        total = {setting: sum(found[setting, stage] for stage in stages) for setting in s.column(own, "setting")}
        changes = ", ".join(
            f"{setting.name} {total[setting.name] - total[s.CLEAN.name]:+.2f}"
            for setting in (*BLOCKS[1:], PATCHES[-2])
            if setting.name in total
        )
        said.append(
            f"On clean images {model}, which may take {max(row['most steps'] for row in own)} steps per stage, takes "
            f"{', '.join(f'{steps:.2f}' for steps in clean)} in stages {stages[0]} to {stages[-1]}, most in stage "
            f"{stages[clean.index(max(clean))]}. Summed over the stages, occlusion changes the number of steps: "
            f"{changes}."
        )
    said.append(
        "The paper's model (ImageNet, at most 5 steps) takes most in stage 3: 3.73 on clean images, 4.18 with "
        "BlockMask56 and 4.92 with BlockMask112; the diamonds are these published values."
    )
    return " ".join(said)
