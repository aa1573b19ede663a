"""From rows of mIoU under occlusion to a page: the paper's table, curves, classes."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from prism.metrics.complexity import PAPER_STEPS
from prism.occlusion.settings import CLEAN, Setting, fills_of, kept, of_fill
from prism.reporting.figures import PAPER, curve, from_zero, legend, look, panels, save
from prism.reporting.pages import Section, present
from prism.reporting.tables import Row, Rows, Tables, column, grouped, means, with_deviation
from prism.tasks.segmentation.evaluate import PAPER_SETTING

# Table 2(b) of the paper: parameters, FLOPs, mIoU clean and with 30 % of patches hidden
PUBLISHED = {
    "XCiT-T12": ("8 M", "", 39.9, 32.2),
    "PVTv2-B1": ("17.8 M", "34.2 G", 42.5, 34.8),
    "BiXT-Ti/16": ("19 M", "31.8 G", 39.2, 30.5),
    "PRISM": ("15.5 M", "35.6 G", 44.8, 39.7),
}
DRAWN = ("PRISM", "PVTv2-B1")  # of the paper's, in figures
NOTE = (
    "mIoU in per cent of all pixels: C clean, Occ. with 30 % of patches hidden (hidden pixels are asked for too); with "
    "several runs or mask seeds, mean ± deviation over them. FLOPs are multiply-accumulates of a 512 x 512 image, "
    f"PRISM's at mean steps {', '.join(f'{steps:g}' for steps in PAPER_STEPS)}. Rows marked as the paper's are its "
    "published values on ADE20K, for reference: they were not measured here."
)


def report(tables: Tables, out: Path) -> list[Section]:
    """Of the first table, of scores; and of `classes`."""
    name, rows = next(iter(tables.items()))
    filling = fills_of(rows)[0]
    costs = {row["model"]: (row["parameters"], row["MACs"]) for row in rows}
    drawn, classes = save(figure(rows, filling), out / f"{name}.png"), tables.get("classes", [])
    return present(
        Section("mIoU", f"{words(rows)} {NOTE} Hidden pixels: {filling}.", paper_table(rows, costs, filling)),
        Section(
            "Curves",
            "Against the share of cells hidden; bands are deviations over runs and seeds. Dashed: the paper's, on "
            "ADE20K.",
            drawn,
        ),
        Section("Examples", "What models saw, what is there, and what they found.", out / "examples.png"),
        Section("Classes", "IoU in per cent, clean, and the share of the pixels.", class_table(classes)),
        Section("All rows", "Scores from 0 to 1.", rows),
    )


def paper_table(rows: Rows, cost: Mapping[str, tuple[int, float]], filling: str) -> list[Row]:
    """One row per model as in the paper's Table 2(b), then the paper's own."""
    found = grouped(of_fill(rows, filling), ["model", "setting"], "mIoU", 100)
    ours = [
        {
            "model": name,
            "Param.": f"{cost[name][0] / 1e6:.1f} M",
            "FLOPs": f"{cost[name][1] / 1e9:.1f} G",
            "mIoU C": with_deviation(found.get((name, CLEAN.name), [])),
            "mIoU Occ.": with_deviation(found.get((name, PAPER_SETTING.name), [])),
        }
        for name in column(rows, "model")
    ]
    names = [*ours[0]][1:]
    theirs = [
        {"model": f"{name} (paper, ADE20K)"}
        | dict(zip(names, (size, flops, f"{clean:.1f}", f"{occluded:.1f}"), strict=True))
        for name, (size, flops, clean, occluded) in PUBLISHED.items()
    ]
    return [*ours, *theirs]


def class_table(rows: Rows) -> list[Row]:
    """One row per class, one column per model: IoU of clean images, mean and deviation over its runs."""
    clean = [row for row in rows if row["setting"] == CLEAN.name]
    found = grouped(clean, ["class", "model"], "IoU", 100)
    lines = {row["class"]: {"class": row["class"], "share": f"{100 * row['share']:.1f}"} for row in clean}
    return [
        line | {name: with_deviation(found.get((kind, name), [])) for name in column(rows, "model")}
        for kind, line in lines.items()
    ]


def figure(rows: Rows, filling: str) -> Figure:
    """mIoU against how much is hidden: of all pixels, and apart of visible and of hidden ones; and of the paper."""
    drawn, (whole, apart) = panels(2, 4.5)
    models = column(rows, "model")
    for axis, score, line in ((whole, "mIoU", "-"), (apart, "visible mIoU", "-"), (apart, "hidden mIoU", "--")):
        found = grouped(of_fill(rows, filling), ["model", "setting"], score, 100)
        for number, name in enumerate(models):
            points = {Setting.parse(s).hidden_share: values for (model, s), values in found.items() if model == name}
            curve(axis, points, number, name if axis is whole else f"{name}, {score.split()[0]}", linestyle=line)
    for number, name in enumerate(DRAWN, start=len(models)):
        label = f"{name} (paper, ADE20K)"
        whole.plot([0, PAPER_SETTING.strength], PUBLISHED[name][2:], label=label, **(look(number) | PAPER))
    for axis, title in ((whole, "all pixels"), (apart, "visible and hidden pixels")):
        axis.set(title=title, xlabel="share of the image hidden")
        legend(axis)
    from_zero(whole)
    whole.set(ylabel=f"mIoU, % ({filling} fill)")
    return drawn


def words(rows: Rows) -> str:
    found, unseen = (means(rows, ["model", "setting"], name) for name in ("mIoU", "hidden mIoU"))
    hardest = max(column(rows, "setting"), key=lambda name: Setting.parse(name).hidden_share)
    chosen = PAPER_SETTING.name if PAPER_SETTING.name in column(rows, "setting") else hardest
    models = column(rows, "model")
    pairs = {model: (found[model, CLEAN.name], found[model, chosen]) for model in models}
    texts = [f"{kept(pairs, 'mIoU', Setting.parse(chosen))}\n\nOn {rows[0]['images']} images:"]
    for model in models:
        clean, occluded = (100 * found[model, setting] for setting in (CLEAN.name, chosen))
        hidden = unseen.get((model, chosen))
        texts.append(f"{model} has {clean:.1f} mIoU clean and {occluded:.1f} with {chosen}")
        texts[-1] += f", {100 * hidden:.1f} of the hidden pixels themselves." if hidden is not None else "."
    return " ".join(texts)
