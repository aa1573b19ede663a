"""Table 2(b): how well do segmenters label images of which patches are hidden? The page of `prism occlusion`."""

from pathlib import Path

from prism.occlusion.settings import CLEAN, Setting
from prism.reporting.pages import Section
from prism.studies.material import Material
from prism.studies.study import Progress, Study, Tables
from prism.tasks.segmentation.occlusion import CURVE, PAPER_SETTING
from prism.tasks.segmentation.report import report as occlusion_report

QUICK_SETTINGS = (CLEAN, PAPER_SETTING, Setting("PatchMask", 0.6))


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    tables = material.occlusion("segmentation", QUICK_SETTINGS if material.quick else CURVE, out, progress)
    return {"table2b": tables["rows"], **{name: rows for name, rows in tables.items() if name != "rows"}}


def report(tables: Tables, out: Path) -> list[Section]:
    return occlusion_report(tables, out)


STUDY = Study(
    "table2b",
    "Segmentation under occlusion",
    "how much mIoU do segmenters lose when patches are hidden, and what do they make of hidden pixels?",
    "Table 2(b)",
    "segmenters",
    "segmenters",
    measure,
    report,
)
