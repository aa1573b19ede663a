"""What all studies share: measure and write CSV; then, from the CSV alone, draw, tabulate and say.

`measure` knows models and images and returns tables of numbers; `report` knows only these tables, as they are read
back from their files, and returns the sections of a results page. A study imports this file as `s`, and what it
measures from `prism.analysis`.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path as Path
from typing import Any, NamedTuple, Protocol, cast

from matplotlib.figure import Figure as Figure

from prism.metrics.significance import with_deviation as with_deviation
from prism.occlusion.benchmark import CLEAN as CLEAN
from prism.occlusion.benchmark import PAPER_SETTINGS as PAPER_SETTINGS
from prism.occlusion.benchmark import Setting as Setting
from prism.occlusion.benchmark import Subject as Subject
from prism.reporting.figures import COLOURS as COLOURS
from prism.reporting.pages import page
from prism.reporting.tables import Rows as Rows
from prism.reporting.tables import markdown
from prism.studies.accuracy import add_costs as add_costs
from prism.studies.catalogue import Study
from prism.studies.inputs import SMOKE
from prism.studies.inputs import Inapplicable as Inapplicable
from prism.studies.inputs import Inputs as Inputs
from prism.studies.inputs import Progress as Progress

Tables = Mapping[str, Rows]  # one file each, by the file's stem
Means = Mapping[tuple[Any, ...], float]
SKIPPED = "skipped"  # the table of what was left out
DPI = 120
MARKERS = "osD^vP"
PAPER: dict[str, Any] = dict(
    linestyle="--", markerfacecolor="white", linewidth=1, alpha=0.8
)  # how published values are drawn


class Section(NamedTuple):
    """A paragraph, and what it speaks of. One without a heading continues the section before it."""

    heading: str
    text: str
    content: Rows | Path


class Method(Protocol):
    """What a study's file offers. The first section is headed by the study's title."""

    def measure(self, inputs: Inputs, out: Path, progress: Progress) -> Tables: ...
    def report(self, tables: Tables, out: Path) -> list[Section]: ...


def method_of(study: Study) -> Method:
    return cast(Method, import_module(study.path))


def conduct(study: Study, method: Method, inputs: Inputs, out: Path, command: str, progress: Progress) -> list[Section]:
    """Measure; write TABLE.csv of every table, figures, STUDY.md and report.html into `out`; return the sections."""
    out.mkdir(parents=True, exist_ok=True)
    measured = {name: rows for name, rows in method.measure(inputs, out, progress).items() if rows}
    for name, rows in measured.items():
        write_csv([{**row, "note": inputs.note} for row in rows], out / f"{name}.csv")
    progress("drawing")
    tables = {name: read_csv(out / f"{name}.csv") for name in measured}
    first, *others = method.report(tables, out)
    left_out = "".join(f" Left out: {row['what']}, since {row['why']}." for row in tables.get(SKIPPED, []))
    first = first._replace(heading=study.title, text=first.text + left_out)
    warning = f"This is a {SMOKE}: its numbers show that the study works, not how good a model is. "
    sections = [first._replace(text=(warning if inputs.quick else "") + first.text), *others]
    (out / f"{study.name}.md").write_text(as_markdown(sections, out, command))
    (out / "report.html").write_text(page(study.title, sections))
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


def write_csv(rows: Rows, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Columns of numbers as numbers, their gaps as None; other columns as text, and names whatever they look like."""
    with path.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for name in {*(rows[0] if rows else ())} - {"model", "run"}:
        for row, value in zip(rows, _as_numbers([row[name] for row in rows]), strict=True):
            row[name] = value
    return rows


def _as_numbers(texts: Sequence[str]) -> Sequence[Any]:
    for kind in (int, float):
        with suppress(ValueError):
            return [kind(text) if text else None for text in texts]
    return texts


def where(rows: Rows, **values: Any) -> list[Mapping[str, Any]]:
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


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


def step_columns(rows: Rows) -> list[str]:
    """The columns of a benchmark that hold the mean steps of the stages."""
    return [name for name in rows[0] if name.startswith("steps ")]


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
    if setting == CLEAN.name:
        return 0.0
    kind = next(kind for kind in ("PatchMask", "BlockMask", "OnlyOne") if setting.startswith(kind))
    strength = float(setting.removeprefix(kind))
    area = (strength / 224) ** 2
    return {"PatchMask": strength, "BlockMask": area, "OnlyOne": 1 - area}[kind]


# ---- words and figures


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def as_markdown(sections: Iterable[Section], out: Path, command: str) -> str:
    """A page in `out`, where the figures are."""
    parts = []
    for heading, text, content in sections:
        is_figure = isinstance(content, Path)
        shown = f"![{content.stem}]({content.relative_to(out)})" if is_figure else markdown(content)
        parts += [f"## {heading}"] * bool(heading) + [text] * bool(text) + [shown]
    return "\n\n".join([*parts, f"`{command}`"]) + "\n"


def shown(rows: Rows, digits: int = 2, without: Sequence[str] = ("note", "run")) -> Rows:
    """As a table in a text: numbers rounded to so many digits, some columns left out."""
    return [
        {name: f"{value:.{digits}f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in ({name: row[name] for name in row if name not in without} for row in rows)
    ]


def style(number: int) -> dict[str, Any]:
    """The colour and marker of the line with this number, from 0."""
    return dict(color=COLOURS[number % len(COLOURS)], marker=MARKERS[number % len(MARKERS)])


def legend_below(figure: Figure, columns: int, handles: Sequence[Any] = (), size: float = 10) -> None:
    """Of the first panel, unless handles are given."""
    if not handles:
        handles, _ = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=size)


def from_zero(axis: Any) -> None:
    """From 0 to just above the highest, after something was added to a finished figure."""
    axis.autoscale(enable=True, axis="y")
    axis.set_ylim(0, None)


def save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=DPI)
    return path
