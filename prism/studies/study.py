"""The shape that all studies share: measure and write CSV; then, from the CSV alone, draw, tabulate and say.

`measure` knows models and pictures and returns tables of numbers; `report` knows only these tables, as they are read
back from their files, and returns the sections of a results page.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prism.occlusion.benchmark import Subject
from prism.reporting.figures import COLOURS
from prism.reporting.figures import MARKERS as MARKERS  # studies take these from here
from prism.reporting.figures import PAPER as PAPER
from prism.reporting.figures import from_zero as fit_upright
from prism.reporting.figures import save as save
from prism.reporting.files import write_text
from prism.reporting.pages import Section, as_markdown, publish, write_report
from prism.reporting.tables import Rows, Tables
from prism.reporting.tables import column as column
from prism.reporting.tables import grouped as grouped
from prism.reporting.tables import means as means
from prism.reporting.tables import read_csv as read_csv
from prism.reporting.tables import with_deviation as with_deviation
from prism.reporting.tables import write_csv as write_csv
from prism.studies.material import SMOKE, Material

__all__ = ["Section", "Tables", "fit_upright"]
Progress = Callable[[str], None]
Takes = Literal["classifiers", "ablated classifiers", "detectors", "segmenters"]
SKIPPED = "skipped"  # the table of what did not apply
STAGES = (1, 2, 3, 4)
STAGE_COLOURS = dict(zip(STAGES, COLOURS, strict=False))


@dataclass(frozen=True)
class Study:
    """One table or figure: how its numbers are measured, and how they are shown."""

    name: str
    title: str
    answers: str  # the question
    paper: str  # what it is in the paper; "" if it goes beyond
    needs: str  # in words
    takes: Takes  # what is trained for it where nothing is given
    measure: Callable[[Material, Path, Progress], Tables]
    report: Callable[[Tables, Path], list[Section]]


def conduct(study: Study, material: Material, out: Path, command: str, progress: Progress) -> list[Section]:
    """Measure; write TABLE.csv of every table, figures, STUDY.md and report.html into `out`; return the sections."""
    out.mkdir(parents=True, exist_ok=True)
    measured = study.measure(material, out, progress)
    progress("drawing")

    def report(tables: Tables, out: Path) -> list[Section]:
        first, *others = study.report(tables, out)
        left_out = "".join(f" Left out: {row['what']}, since {row['why']}." for row in tables.get(SKIPPED, []))
        return [first._replace(text=first.text + left_out), *others]

    noted = {name: [{**row, "note": material.note} for row in rows] for name, rows in measured.items()}
    sections = first, *others = publish(noted, report, out, study.title)
    if material.quick:
        warning = f"This is a {SMOKE}: its numbers show that the study works, not how good a model is. "
        sections = [first._replace(text=warning + first.text), *others]
        write_report(out, study.title, sections)
    write_text(out / f"{study.name}.md", as_markdown(sections, out, command))
    return [first, *others]


def skipped(what: Iterable[str], why: str) -> list[dict[str, Any]]:
    """Rows of what a study had no use for."""
    return [{"what": name, "why": why} for name in dict.fromkeys(what)]


def other_subjects(subjects: Iterable[Subject], chosen: Subject) -> list[str]:
    """Those that a study of one leaves out, in words."""
    rest = [subject.name for subject in subjects if subject is not chosen]
    return [name if name != chosen.name else f"a further run of {name}" for name in rest]


# ---- words and pictures


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shown(rows: Rows, digits: int = 2, without: Sequence[str] = ("note", "run")) -> Rows:
    """As a table in a text: parts of numbers to so many digits, some columns left out."""
    return [
        {name: f"{value:.{digits}f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in ({name: row[name] for name in row if name not in without} for row in rows)
    ]
