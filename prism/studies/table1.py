"""Table 1: how accurate are classifiers when parts of images are hidden? The page of `prism occlusion`."""

from pathlib import Path

from prism.occlusion.settings import PAPER_SETTINGS
from prism.reporting.pages import Section
from prism.studies.material import Material
from prism.studies.study import Progress, Study, Tables
from prism.tasks.classification.report import report as occlusion_report


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    tables = material.occlusion("classification", PAPER_SETTINGS, out, progress)
    return {"table1": tables["rows"], **{name: rows for name, rows in tables.items() if name != "rows"}}


def report(tables: Tables, out: Path) -> list[Section]:
    return occlusion_report(tables, out)


STUDY = Study(
    "table1",
    "Classification under occlusion",
    "how accurate are classifiers when patches, a block, or all but a block are hidden?",
    "Table 1",
    "classifiers; several runs of a model give deviations",
    "classifiers",
    measure,
    report,
)
