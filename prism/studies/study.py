"""The shape that all studies share: measure and write CSV; then, from the CSV alone, draw, tabulate and say.

`measure` knows models and pictures and returns tables of numbers; `report` knows only these tables, as they are read
back from their files, and returns the sections of a results page.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure

from prism.metrics.significance import with_deviation as with_deviation  # studies take it from here
from prism.occlusion.benchmark import Subject
from prism.reporting.figures import COLOURS
from prism.reporting.pages import page
from prism.reporting.tables import Rows, markdown
from prism.studies.material import SMOKE, Material

Tables = Mapping[str, Rows]  # a file each, by the file's stem
Progress = Callable[[str], None]
Takes = Literal["classifiers", "ablated classifiers", "detectors", "segmenters"]
SKIPPED = "skipped"  # the table of what did not apply
DPI = 120
MARKERS = "osD^vP"
STAGES = (1, 2, 3, 4)
STAGE_COLOURS = dict(zip(STAGES, COLOURS, strict=False))
PAPER: dict[str, Any] = dict(
    linestyle="--", markerfacecolor="white", linewidth=1, alpha=0.8
)  # how published values are drawn


class Section(NamedTuple):
    """A paragraph, and what it speaks of. One without a heading goes on with the section before it."""

    heading: str
    text: str
    content: Rows | Path


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
    measured = {name: rows for name, rows in study.measure(material, out, progress).items() if rows}
    for name, rows in measured.items():
        write_csv([{**row, "note": material.note} for row in rows], out / f"{name}.csv")
    progress("drawing")
    tables = {name: read_csv(out / f"{name}.csv") for name in measured}
    first, *others = study.report(tables, out)
    left_out = "".join(f" Left out: {row['what']}, since {row['why']}." for row in tables.get(SKIPPED, []))
    warning = f"This is a {SMOKE}: its numbers show that the study works, not how good a model is. "
    sections = [first._replace(text=(warning if material.quick else "") + first.text + left_out), *others]
    (out / f"{study.name}.md").write_text(as_markdown(beside(sections, out), command))
    (out / "report.html").write_text(page(study.title, sections))
    return [first._replace(text=first.text + left_out), *others]


def skipped(what: Iterable[str], why: str) -> list[dict[str, Any]]:
    """Rows of what a study had no use for."""
    return [{"what": name, "why": why} for name in dict.fromkeys(what)]


def other_subjects(subjects: Iterable[Subject], chosen: Subject) -> list[str]:
    """Those that a study of one leaves out, in words."""
    rest = [subject.name for subject in subjects if subject is not chosen]
    return [name if name != chosen.name else f"a further run of {name}" for name in rest]


# ---- tables


def write_csv(rows: Rows, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Columns of numbers as numbers, their gaps as None; other columns as text, and names whatever they look like."""
    with path.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for name in (name for name in (rows[0] if rows else ()) if name not in ("model", "run")):
        told = [row[name] for row in rows if row[name] != ""]
        number = next((kind for kind in (int, float) if _all_are(told, kind)), None)
        if number:
            for row in rows:
                row[name] = number(row[name]) if row[name] != "" else None
    return rows


def _all_are(texts: Sequence[str], kind: type) -> bool:
    try:
        return bool([kind(text) for text in texts]) or not texts
    except ValueError:
        return False


def grouped(rows: Rows, by: Sequence[str], value: str) -> dict[tuple[Any, ...], list[float]]:
    """The values of the rows that agree in the columns `by`, in their order."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row[value] is not None:
            found[tuple(row[name] for name in by)].append(row[value])
    return dict(found)


def means(rows: Rows, by: Sequence[str], value: str) -> dict[tuple[Any, ...], float]:
    return {key: statistics.mean(values) for key, values in grouped(rows, by, value).items()}


def column(rows: Rows, name: str) -> list[Any]:
    """The different values of a column, in their order."""
    return list(dict.fromkeys(row[name] for row in rows))


# ---- words and pictures


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def beside(sections: Iterable[Section], out: Path) -> list[Section]:
    """The sections as a page in `out` speaks of their pictures."""
    return [
        section._replace(content=section.content.relative_to(out)) if isinstance(section.content, Path) else section
        for section in sections
    ]


def as_markdown(sections: Iterable[Section], command: str) -> str:
    parts = []
    for heading, text, content in sections:
        shown = f"![{content.stem}]({content})" if isinstance(content, Path) else markdown(content)
        parts += [f"## {heading}"] * bool(heading) + [text] * bool(text) + [shown]
    return "\n\n".join([*parts, f"`{command}`"]) + "\n"


def shown(rows: Rows, digits: int = 2, without: Sequence[str] = ("note", "run")) -> Rows:
    """As a table in a text: parts of numbers to so many digits, some columns left out."""
    return [
        {name: f"{value:.{digits}f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in ({name: row[name] for name in row if name not in without} for row in rows)
    ]


def fit_upright(axis: Any) -> None:
    """From 0 to just above the highest, after something was added to a finished figure."""
    axis.autoscale(enable=True, axis="y")
    axis.set_ylim(0, None)


def save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=DPI)
    return path
