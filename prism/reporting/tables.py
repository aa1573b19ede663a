"""A table is a list of rows; every command shows it, and writes it as CSV and Markdown."""

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prism.reporting.files import one_line, write_text, write_whole

Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]  # one file each, by the file's stem
WIDEST = 12  # columns that a terminal has room for


def show(rows: Rows, title: str) -> None:
    """Print the table; one with many columns lies on its side."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head, *body = texts(rows)
    if len(head) > WIDEST:
        head, *body = zip(head, *body, strict=True)
    table = Table()
    for place, name in enumerate(head):
        table.add_column(Text(name), justify="left" if is_words([line[place] for line in body]) else "right")
    for line in body:
        table.add_row(*map(Text, line))
    console = Console(width=None if sys.stdout.isatty() else 200)  # a file has no edge to wrap at
    console.print(Text(one_line(title), style="bold"))
    console.print(table)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """What is being done, in a line on the terminal that the next one replaces."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True, quiet=quiet).status("") as status:
        yield lambda said: status.update(Text(one_line(said)))


def write(rows: Rows, stem: Path, note: str) -> None:
    """`stem`.csv with the numbers as they are, `stem`.md rounded, under the note that says how they were made."""
    write_csv(rows, stem.with_suffix(".csv"))
    write_text(stem.with_suffix(".md"), f"{note}\n\n{markdown(rows)}\n")


def write_csv(rows: Rows, path: Path) -> None:
    from pandas import DataFrame

    kept = [{_utf8(name): _utf8(value) for name, value in row.items()} for row in rows]
    frame = DataFrame(kept, columns=columns(kept), dtype=object)
    write_whole(path, lambda unfinished: frame.to_csv(unfinished, index=False))


def _utf8(value: Any) -> Any:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def read_csv(path: Path) -> list[Row]:
    """Columns of numbers as numbers, their gaps as None; other columns as text, and names whatever they look like."""
    from pandas import read_csv

    names: Any = {"model": "string", "run": "string"}
    frame = read_csv(path, dtype=names, dtype_backend="numpy_nullable", keep_default_na=False, na_values=[""])
    for name in frame.select_dtypes("string"):
        frame[name] = frame[name].fillna("")
    found = frame.astype(object)
    return found.where(found.notna(), None).to_dict("records")  # pyright: ignore[reportReturnType]


def markdown(rows: Rows) -> str:
    head, *body = texts(rows)
    lines = [_escaped(head), ["---"] * len(head), *map(_escaped, body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(cells: Sequence[str]) -> list[str]:
    """A `|` would begin a cell, and `<` a tag."""
    return [cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells]


def texts(rows: Rows) -> list[Sequence[str]]:
    """The cells of a table as people read them; the first line names the columns."""
    head = columns(rows)
    return [[*map(one_line, head)], *([_text(row.get(name)) for name in head] for row in rows)]


def columns(rows: Rows) -> list[str]:
    """All that any row has, in their order."""
    return list(dict.fromkeys(name for row in rows for name in row))


def is_words(cells: Iterable[str]) -> bool:
    return not any(cell.lstrip("+-± ")[:1].isdigit() for cell in cells)


def column(rows: Rows, name: str) -> list[Any]:
    """The different values of a column, in their order."""
    return list(dict.fromkeys(row[name] for row in rows))


def grouped(rows: Rows, by: Sequence[str], value: str, unit: float = 1) -> dict[tuple[Any, ...], list[float]]:
    """The values of the rows that agree in the columns `by`, in their order; a `unit` of 100 gives per cent."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row[value] is not None:
            found[tuple(row[name] for name in by)].append(unit * row[value])
    return dict(found)


def means(rows: Rows, by: Sequence[str], value: str) -> dict[tuple[Any, ...], float]:
    return {key: statistics.mean(values) for key, values in grouped(rows, by, value).items()}


def with_deviation(values: Sequence[float]) -> str:
    """Their mean, and how far several of them lie apart, as a table shows it; empty if there are none."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else one_line(str(value))
