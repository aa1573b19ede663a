"""A table is a list of rows; every command shows it, and writes it as CSV and Markdown."""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Rows = Sequence[Mapping[str, Any]]
WIDEST = 12  # columns that a terminal has room for


def show(rows: Rows, title: str) -> None:
    """Print the table; one with many columns lies on its side."""
    if len(rows[0]) > WIDEST:
        head, *others = rows[0]
        rows = [{head: name, **{_text(row[head]): row[name] for row in rows}} for name in others]
    table = Table()
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    console = Console(width=None if sys.stdout.isatty() else 200)  # a file has no edge to wrap at
    console.print(title, style="bold")
    console.print(table)


def write(rows: Rows, stem: Path, note: str) -> None:
    """`stem`.csv with the numbers as they are, `stem`.md rounded, under the note that says how they were made."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with stem.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    stem.with_suffix(".md").write_text(f"{note}\n\n{markdown(rows)}\n")


def markdown(rows: Rows) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
