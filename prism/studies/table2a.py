"""Table 2(a): how well do detectors find partly hidden objects? The page of `prism occlusion`."""

from pathlib import Path

from prism.reporting.pages import Section
from prism.studies.material import Material
from prism.studies.study import Progress, Study, Tables
from prism.tasks.detection.occlusion import PAPER_SETTINGS, settings_of
from prism.tasks.detection.report import report as occlusion_report

QUICK_SETTINGS = settings_of((0.0, 0.3, 0.5))


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    settings = QUICK_SETTINGS if material.quick else PAPER_SETTINGS
    tables = material.occlusion("detection", settings, out, progress)
    return {"table2a": tables["rows"], **{name: rows for name, rows in tables.items() if name != "rows"}}


def report(tables: Tables, out: Path) -> list[Section]:
    return occlusion_report(tables, out)


STUDY = Study(
    "table2a",
    "Detection under occlusion",
    "how much AP do detectors lose when a share of two objects per image is hidden?",
    "Table 2(a)",
    "detectors",
    "detectors",
    measure,
    report,
)
