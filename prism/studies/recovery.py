"""Beyond the paper: does each step bring the features of an occluded image closer to those of the clean one?"""

from collections import defaultdict
from itertools import pairwise

import torch

from prism.analysis.pairs import Pair, hidden_tokens
from prism.analysis.recovery import closeness_by_token, closeness_when_halted
from prism.model.backbone import Prism
from prism.studies import study as s

SETTINGS = (
    s.CLEAN,
    s.Setting("PatchMask", 0.6),
    s.Setting("PatchMask", 0.8),
    s.Setting("BlockMask", 112),
    s.Setting("OnlyOne", 112),
)
OCCLUDED = SETTINGS[1:]
HALTED = "halted"  # the stage's own output, where its halting unit stops
Totals = dict[tuple[int, str, str], list[float]]  # sum and count of cosines by stage, step and kind of token


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Mean cosine over tokens and images for every setting, stage and step: of hidden tokens, visible ones, and all.

    The clean image itself is measured too, as a control: what a stage has left to do when nothing is hidden.
    """
    found, rows = inputs.prisms("only PRISM takes steps"), []
    for which, network, pairs in inputs.prism_pairs(found, SETTINGS, progress):
        totals: Totals = defaultdict(lambda: [0.0, 0.0])
        for pair in pairs:
            _add(totals, network, pair)
        rows += [
            which
            | {"stage": stage, "step": step, "tokens": tokens, "cosine": total / count, "count": int(count)}
            | {"images": len(found.images)}
            for (stage, step, tokens), (total, count) in totals.items()
            if count
        ]
    return {"recovery": rows, s.SKIPPED: s.skipped(found.others, "it takes no steps")}


def _add(totals: Totals, network: Prism, pair: Pair) -> None:
    clean, occluded, hidden = pair
    after_steps = closeness_by_token(network, clean, occluded)
    as_halted = closeness_when_halted(network, clean, occluded)
    for stage, (cosines, halted) in enumerate(zip(after_steps, as_halted, strict=True), start=1):
        unseen = hidden_tokens(hidden, (halted.shape[-2], halted.shape[-1]))
        every = {"all": torch.ones_like(unseen), "hidden": unseen, "visible": ~unseen}
        named = {str(t): values for t, values in enumerate(cosines.unbind(1), start=1)} | {HALTED: halted}
        for step, values in named.items():
            for name, chosen in every.items():
                entry = totals[stage, step, name]
                entry[0] += float(values[chosen].sum())
                entry[1] += int(chosen.sum())


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["recovery"]
    caption = (
        "Similarity to the clean image after each step: solid for tokens more than half hidden, dashed for visible "
        "ones. The grey line is the control, the clean image itself. A cross marks the output where the stage really "
        "halts."
    )
    return s.told(_words(rows), s.shown(_table(rows), 3), caption, figure(rows), out / "recovery.png")


def figure(rows: s.Rows) -> s.Figure:
    """One row per model, one panel per stage."""
    models, stages = s.column(rows, "model"), s.column(rows, "stage")
    sheet = s.Figure(figsize=(3.25 * len(stages), 3.6 * len(models)), layout="constrained")
    axes = sheet.subplots(len(models), len(stages), squeeze=False, sharey="row", sharex=True)
    for line, model in zip(axes, models, strict=True):
        found = s.means(s.where(rows, model=model), ["setting", "stage", "tokens", "step"], "cosine")
        for axis, stage in zip(line, stages, strict=True):
            for number, setting in enumerate(SETTINGS):
                for tokens, style in (("all", "-"),) if setting == s.CLEAN else (("hidden", "-"), ("visible", "--")):
                    curve = _curve(found, setting.name, stage, tokens)
                    if not curve:
                        continue
                    colour = "#888888" if setting == s.CLEAN else s.COLOURS[number - 1]
                    label = f"{setting.name}, {tokens}" if setting != s.CLEAN else "clean (control)"
                    axis.plot(range(1, len(curve) + 1), curve, color=colour, linestyle=style, marker=".", label=label)
                    halted = found[setting.name, stage, tokens, HALTED]
                    axis.plot(len(curve) + 0.5, halted, "x", color=colour, markersize=6)
            axis.set(title=f"{model}, stage {stage}", xlabel="step")
            ticks = range(1, 1 + max(len(_curve(found, setting.name, stage, "all")) for setting in SETTINGS))
            axis.set_xticks([*ticks, len(ticks) + 0.5], [*map(str, ticks), HALTED])
            axis.grid(alpha=0.3)
        line[0].set(ylabel="cosine to the clean image")
    s.legend_below(sheet, 5, size=8)
    return sheet


def _curve(found: s.Means, setting: str, stage: int, tokens: str) -> list[float]:
    steps = sorted(int(key[3]) for key in found if key[:3] == (setting, stage, tokens) and key[3] != HALTED)
    return [found[setting, stage, tokens, str(step)] for step in steps]


def _table(rows: s.Rows) -> s.Rows:
    """Hidden tokens, the mean over the settings."""
    own = s.where(rows, tokens="hidden")
    found = s.means(own, ["model", "stage", "step"], "cosine")
    steps = {step: f"step {step}" if step != HALTED else step for step in s.column(own, "step")}
    return [
        {"model": model, "stage": stage} | {name: found.get((model, stage, step)) for step, name in steps.items()}
        for model in s.column(own, "model")
        for stage in s.column(rows, "stage")
    ]


def _words(rows: s.Rows) -> str:
    said = ["The table gives hidden tokens, averaged over the settings."]
    for model in s.column(rows, "model"):
        found = s.means(s.where(rows, model=model), ["setting", "stage", "tokens", "step"], "cosine")
        closer, gain = [], []
        for stage in s.column(rows, "stage"):
            curves = [_curve(found, setting.name, stage, "hidden") for setting in OCCLUDED]
            moves = [later - earlier for curve in curves for earlier, later in pairwise(curve)]
            closer.append(f"{sum(move > 0 for move in moves)} of {len(moves)}")
            control = _curve(found, s.CLEAN.name, stage, "all")
            ends = [curve[-1] - curve[0] for curve in curves if curve]
            gain.append(f"{sum(ends) / len(ends):+.2f} ({control[-1] - control[0]:+.2f})" if ends else "none")
        said.append(
            f"In {model}, over all settings, {', '.join(closer)} steps after the first bring hidden tokens closer to "
            f"the clean image (stage 1 to {len(closer)}). From the first step to the last, their similarity changes "
            f"by {', '.join(gain)}; the change for the clean image itself, the control, is in brackets."
        )
    return " ".join(said)
