"""Table 2(b): how much mIoU do segmenters lose when patches are hidden, and how well do they label hidden pixels?"""

from typing import Any

from prism.occlusion import segmentation as segmentation_benchmark
from prism.occlusion.segmentation import CURVE, NOTE, PAPER_SETTING, PUBLISHED, SegmentationBenchmark, costs
from prism.studies import study as s

FILL = "mean"
QUICK_SETTINGS = (s.CLEAN, PAPER_SETTING, s.Setting("PatchMask", 0.6))


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """Scores of every segmenter and setting; and each class's IoU."""
    subjects, images, classes = inputs.segmenters()
    settings = QUICK_SETTINGS if inputs.quick else CURVE
    benchmark = SegmentationBenchmark(images, classes, settings, **inputs.dense_benchmark(out))
    rows, of_classes = benchmark.run(subjects, progress)
    progress("counting")
    spent = {subject.name: dict(zip(("parameters", "MACs"), costs(subject.model), strict=True)) for subject in subjects}
    return {"table2b": [row | spent[row["model"]] for row in rows], "classes": of_classes}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["table2b"]
    sizes = {row["model"]: (row["parameters"], row["MACs"]) for row in rows}
    caption = "mIoU against the share of patches hidden. Dashed: the paper's values on ADE20K."
    table = segmentation_benchmark.paper_table(rows, sizes, FILL)
    return s.told(_words(rows), table, caption, figure(rows), out / "table2b.png")


def figure(rows: s.Rows) -> s.Figure:
    """The benchmark's curves, and two of the paper's models."""
    drawn = segmentation_benchmark.curves(rows, FILL)
    whole = drawn.axes[0]
    for number, name in enumerate(("PRISM", "PVTv2-B1"), start=len(s.column(rows, "model"))):
        look: dict[str, Any] = s.style(number) | s.PAPER
        whole.plot([0, PAPER_SETTING.strength], PUBLISHED[name][2:], label=f"{name} (paper, ADE20K)", **look)
    s.from_zero(whole)
    whole.legend(frameon=False, fontsize=8)
    return drawn


def _words(rows: s.Rows) -> str:
    found = s.means(rows, ["model", "setting"], "mIoU")
    unseen = s.means(rows, ["model", "setting"], "hidden mIoU")
    said = [f"On {rows[0]['images']} images:"]
    for model in s.column(rows, "model"):
        clean, occluded = (100 * found[model, setting.name] for setting in (s.CLEAN, PAPER_SETTING))
        hidden = unseen.get((model, PAPER_SETTING.name))
        said.append(f"{model} has {clean:.1f} mIoU clean and {occluded:.1f} with 30 % of patches hidden")
        said[-1] += f" ({100 * hidden:.1f} on the hidden pixels)." if hidden is not None else "."
    return " ".join([*said, NOTE])
