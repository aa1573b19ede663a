"""One self-contained HTML page of tables and figures."""

import base64
import html
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prism.reporting.tables import Rows, markdown


def page(title: str, sections: Iterable[tuple[str, str, Rows | Path]]) -> str:
    """One self-contained HTML page: a heading, a sentence, and a table or a picture, for each section.

    A section without a heading goes on with the one before it.
    """
    body = []
    for heading, text, content in sections:
        body.append(f"<h2>{html.escape(heading)}</h2>" if heading else "")
        body.append(f"<p>{html.escape(text)}</p>")
        body.append(_picture(content) if isinstance(content, Path) else _table(content))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.25rem .7rem;text-align:right;"
        "border-bottom:1px solid #ddd}td{white-space:nowrap}.words{text-align:left}"
        "img{max-width:100%}div.wide{overflow-x:auto}</style>"
        f"<h1>{html.escape(title)}</h1>{''.join(body)}</html>"
    )


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(path.stem)}" src="data:image/png;base64,{data}">'


def _table(rows: Rows) -> str:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown(rows).splitlines()]
    head, _, *body = lines
    sides = [' class="words"' if all(_is_word(line[place]) for line in body) else "" for place in range(len(head))]
    drawn = [("th", head), *(("td", line) for line in body)]
    rest = "".join(f"<tr>{''.join(_cells(tag, line, sides))}</tr>" for tag, line in drawn)
    return f'<div class="wide"><table>{rest}</table></div>'


def _cells(tag: str, line: Sequence[str], sides: Sequence[str]) -> Iterator[str]:
    for cell, side in zip(line, sides, strict=True):
        yield f"<{tag}{side}>{html.escape(cell)}</{tag}>"


def _is_word(cell: str) -> bool:
    return not cell.removeprefix("-")[:1].isdigit()
