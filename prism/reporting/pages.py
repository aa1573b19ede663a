"""One self-contained HTML page of tables and figures, and the same as Markdown."""

import base64
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from prism.reporting import provenance
from prism.reporting.files import write_text
from prism.reporting.tables import Rows, Tables, is_words, markdown, read_csv, texts, write_csv


class Section(NamedTuple):
    """A paragraph, and the table or figure it is about. One without a heading continues the section before it."""

    heading: str
    text: str
    content: Rows | Path


def present(*sections: Section) -> list[Section]:
    """Those whose table has rows, or whose figure was drawn."""
    return [s for s in sections if (s.content.exists() if isinstance(s.content, Path) else s.content)]


def page(title: str, sections: Iterable[Section], summary: str = "") -> str:
    """The page as HTML: nothing is fetched from elsewhere, tables sort by a click, the foot says how it was made."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(loader=PackageLoader("prism.reporting"), autoescape=True, undefined=StrictUndefined)
    return templates.get_template("page.html").render(
        title=title,
        summary=summary,
        sections=[_filled(section) for section in sections],
        command=provenance.command(),
        build=provenance.build(),
        versions=provenance.versions(),
    )


def write_page(path: Path, title: str, sections: Iterable[Section], summary: str = "") -> None:
    write_text(path, page(title, sections, summary))


def publish(tables: Tables, report: Callable[[Tables, Path], list[Section]], out: Path, title: str) -> list[Section]:
    """Write each table as CSV into `out`, then report.html from what is read back; return its sections.

    So what is drawn and said is what was written.
    """
    kept = {name: rows for name, rows in tables.items() if rows}
    for name, rows in kept.items():
        write_csv(rows, out / f"{name}.csv")
    sections = report({name: read_csv(out / f"{name}.csv") for name in kept}, out)
    write_report(out, title, sections)
    return sections


def write_report(out: Path, title: str, sections: list[Section]) -> None:
    """report.html: it opens with the first paragraph as its summary, and with its first figure."""
    first, *others = sections
    summary, _, rest = first.text.partition("\n\n")
    opening = [section for section in others if isinstance(section.content, Path)][:1]
    others = [section for section in others if section not in opening]
    heading = "" if first.heading == title else first.heading  # not the same words twice
    write_page(out / "report.html", title, [*opening, Section(heading, rest, first.content), *others], summary)


def as_markdown(sections: Iterable[Section], out: Path, command: str) -> str:
    """As a file in `out` shows it, where the figures lie."""
    parts = []
    for heading, text, content in sections:
        drawn = isinstance(content, Path)
        shown = f"![{content.stem}]({content.relative_to(out)})" if drawn else markdown(content)
        parts += [f"## {heading}"] * bool(heading) + [text] * bool(text) + [shown]
    return "\n\n".join([*parts, f"`{command}`"]) + "\n"


def _filled(section: Section) -> dict[str, Any]:
    heading, text, content = section
    paragraphs = [part for part in text.split("\n\n") if part]
    filled: dict[str, Any] = dict(heading=heading, paragraphs=paragraphs, figure=None, table=None, name="")
    if isinstance(content, Path):
        return filled | dict(figure=base64.b64encode(content.read_bytes()).decode(), name=content.stem)
    head, *body = texts(content)
    words = [is_words(line[place] for line in body) for place in range(len(head))]
    return filled | dict(table=dict(head=list(zip(head, words, strict=True)), body=body, words=words))
