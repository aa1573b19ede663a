"""Table 2(b): how well do segmenters label pictures of which patches are hidden?"""

from pathlib import Path

from matplotlib.figure import Figure

from prism.occlusion import segmentation as segmentation_benchmark
from prism.occlusion.benchmark import CLEAN, Setting
from prism.occlusion.segmentation import CURVE, NOTE, PAPER_SETTING, PUBLISHED, SegmentationBenchmark, costs
from prism.reporting.figures import COLOURS
from prism.reporting.tables import Rows
from prism.studies.material import Material
from prism.studies.study import MARKERS, PAPER, Progress, Section, Study, Tables, column, fit_upright, means, save

FILL = "mean"
QUICK_SETTINGS = (CLEAN, PAPER_SETTING, Setting("PatchMask", 0.6))


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """Scores of every segmenter and setting; and each class's IoU."""
    subjects, pictures, classes = material.segmenters()
    benchmark = SegmentationBenchmark(
        pictures,
        classes,
        QUICK_SETTINGS if material.quick else CURVE,
        batch=min(material.batch, 8),
        workers=material.workers,
        device=material.device,
        folder=out / "done",
    )
    rows, of_classes = benchmark.run(subjects, progress)
    progress("counting")
    sizes = {subject.name: costs(subject.model) for subject in subjects}
    spent = {name: {"parameters": size, "MACs": macs} for name, (size, macs) in sizes.items()}
    return {"table2b": [row | spent[row["model"]] for row in rows], "classes": of_classes}


def report(tables: Tables, out: Path) -> list[Section]:
    rows = tables["table2b"]
    sizes = {row["model"]: (row["parameters"], row["MACs"]) for row in rows}
    drawn = save(figure(rows), out / "table2b.png")
    return [
        Section(STUDY.title, _words(rows), segmentation_benchmark.paper_table(rows, sizes, FILL)),
        Section("", "mIoU against the share of patches hidden. Dashed: the paper's, on ADE20K.", drawn),
    ]


def figure(rows: Rows) -> Figure:
    """The benchmark's curves, and two of the paper's models."""
    drawn = segmentation_benchmark.curves(rows, FILL)
    whole = drawn.axes[0]
    for number, name in enumerate(("PRISM", "PVTv2-B1"), start=len(column(rows, "model"))):
        _, _, clean, occluded = PUBLISHED[name]
        look = dict(color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)]) | PAPER
        whole.plot([0, PAPER_SETTING.strength], [clean, occluded], label=f"{name} (paper, ADE20K)", **look)  # pyright: ignore
    fit_upright(whole)
    whole.legend(frameon=False, fontsize=8)
    return drawn


def _words(rows: Rows) -> str:
    found = means(rows, ["model", "setting"], "mIoU")
    unseen = means(rows, ["model", "setting"], "hidden mIoU")
    said = [f"On {rows[0]['images']} pictures:"]
    for model in column(rows, "model"):
        clean, occluded = (100 * found[model, setting.name] for setting in (CLEAN, PAPER_SETTING))
        hidden = unseen.get((model, PAPER_SETTING.name))
        said.append(f"{model} has {clean:.1f} mIoU clean and {occluded:.1f} with 30 % of patches hidden")
        said[-1] += f", {100 * hidden:.1f} of the hidden pixels themselves." if hidden is not None else "."
    return " ".join([*said, NOTE])


STUDY = Study(
    "table2b",
    "Segmentation under occlusion",
    "how much mIoU do segmenters lose when patches are hidden, and what do they say of hidden pixels?",
    "Table 2(b)",
    "segmenters",
    "segmenters",
    measure,
    report,
)
