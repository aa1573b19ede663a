"""What all studies share: measure and write CSV; then, from the CSV alone, draw, tabulate and say.

`measure` knows models and images and returns tables of numbers; `report` knows only these tables, as they are read
back from their files, and returns the sections of a results page. A study imports this file as `s`, and what it
measures from `prism.analysis`.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from matplotlib.figure import Figure

from prism.occlusion.benchmark import step_columns
from prism.occlusion.runner import Subject
from prism.occlusion.settings import CLEAN, PAPER_SETTINGS, Setting
from prism.reporting.figures import COLOURS, MARKERS, PAPER, legend_below, panels, save
from prism.reporting.figures import look as style
from prism.reporting.files import write_text
from prism.reporting.pages import Section, as_markdown, publish, write_report
from prism.reporting.tables import Rows, Tables, column, grouped, means, with_deviation
from prism.studies.catalogue import Study
from prism.studies.inputs import SMOKE, Inapplicable, Inputs, Progress
from prism.tasks.classification.evaluate import add_costs

Means = Mapping[tuple[Any, ...], float]
SKIPPED = "skipped"  # the table of what was left out


class Method(Protocol):
    """What a study's file offers. The first section is headed by the study's title."""

    def measure(self, inputs: Inputs, out: Path, progress: Progress) -> Tables: ...
    def report(self, tables: Tables, out: Path) -> list[Section]: ...


def method_of(study: Study) -> Method:
    return cast(Method, import_module(study.path))


def conduct(study: Study, method: Method, inputs: Inputs, out: Path, command: str, progress: Progress) -> list[Section]:
    """Measure; write TABLE.csv of every table, figures, STUDY.md and report.html into `out`; return the sections."""
    out.mkdir(parents=True, exist_ok=True)
    measured = method.measure(inputs, out, progress)
    progress("drawing")

    def report(tables: Tables, out: Path) -> list[Section]:
        first, *others = method.report(tables, out)
        left_out = "".join(f" Left out: {row['what']}, since {row['why']}." for row in tables.get(SKIPPED, []))
        return [first._replace(heading=study.title, text=first.text + left_out), *others]

    noted = {name: [{**row, "note": inputs.note} for row in rows] for name, rows in measured.items()}
    sections = first, *others = publish(noted, report, out, study.title)
    if inputs.quick:
        warning = f"This is a {SMOKE}: its numbers show that the study works, not how good a model is. "
        sections = [first._replace(text=warning + first.text), *others]
        write_report(out, study.title, sections)
    write_text(out / f"{study.name}.md", as_markdown(sections, out, command))
    return [first, *others]


def told(words: str, table: Rows, caption: str, figure: Figure, path: Path) -> list[Section]:
    """The sections of most studies: what was found, a table of it, and a figure, which goes to `path`."""
    return [Section("", words, table), Section("", caption, save(figure, path))]


class Case(NamedTuple):
    """A subject, perhaps under other switches: what its rows begin with, and the training run that it is of."""

    columns: Mapping[str, Any]
    subject: Subject
    run: str


def measure_cases(
    inputs: Inputs, images: Any, settings: Sequence[Setting], cases: Sequence[Case], out: Path, progress: Progress
) -> list[tuple[Case, Mapping[str, Any]]]:
    """Each case with its rows of the benchmark, GMACs included; a subject of several cases is measured once."""
    subjects = list({(case.subject.name, case.subject.run): case.subject for case in cases}.values())
    rows, _ = inputs.benchmark(images, settings, out).run(subjects, progress)
    add_costs(rows, subjects, images)
    return [(case, row) for case in cases for row in where(rows, model=case.subject.name, run=case.subject.run)]


def skipped(what: Iterable[str], why: str) -> list[dict[str, Any]]:
    """Rows of what a study had no use for."""
    return [{"what": name, "why": why} for name in dict.fromkeys(what)]


# ---- tables


def where(rows: Rows, **values: Any) -> list[Mapping[str, Any]]:
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def stage_table(rows: Rows, value: str, published: Iterable[tuple[str, str, int, float]]) -> Rows:
    """One row per model and setting, one column per stage; then the published (model, setting, stage, value)."""
    stages, found = column(rows, "stage"), means(rows, ["model", "setting", "stage"], value)
    ours = [
        {"model": model, "setting": setting} | {f"stage {n}": found[model, setting, n] for n in stages}
        for model in column(rows, "model")
        for setting in column(rows, "setting")
    ]
    theirs = [
        {"model": f"{model} (paper, ImageNet)", "setting": setting}
        | {f"stage {n}": number if n == stage else None for n in stages}
        for model, setting, stage, number in published
    ]
    return [*ours, *theirs]


def hidden_share(setting: str) -> float:
    """Of an image, by a setting's name."""
    return Setting.parse(setting).hidden_share


# ---- words and figures


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shown(rows: Rows, digits: int = 2, without: Sequence[str] = ("note", "run")) -> Rows:
    """As a table in a text: numbers rounded to so many digits, some columns left out."""
    return [
        {name: f"{value:.{digits}f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in ({name: row[name] for name in row if name not in without} for row in rows)
    ]
