"""A toy study: how many images are there?"""

from pathlib import Path

from prism.reporting.pages import Section
from prism.reporting.tables import Tables
from prism.studies.material import Material
from prism.studies.study import Progress, Study


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    return {"count": [{"images": len(material.classifiers().pictures)}]}


def report(tables: Tables, out: Path) -> list[Section]:
    return [Section("Count", f"There are {tables['count'][0]['images']} images.", tables["count"])]


STUDY = Study("count", "Count", "how many images are there?", "", "a classifier", "classifiers", measure, report)
