"""What the site shows beside the texts of this folder: what lies in results/, and the reference from docstrings."""

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
SHOWN = {".md", ".csv", ".png", ".json", ".svg", ""}  # the last are scripts, such as results/imagenette-112/run


def on_config(config: Any) -> Any:
    """Every folder of results that has a README, and every room of the package, has its place in the menu."""
    results = sorted((ROOT / "results").glob("*/README.md"))
    for entry in config.nav:
        if "Results" in entry:
            entry["Results"] = [*entry["Results"], *(f"results/{path.parent.name}/README.md" for path in results)]
        if "Reference" in entry:
            entry["Reference"] = [*entry["Reference"], *({f"prism.{room}": f"api/{room}.md"} for room in rooms())]
    return config


def on_files(files: Files, config: Any) -> Files:
    for path in sorted((ROOT / "results").rglob("*")):
        if path.is_file() and path.suffix in SHOWN:
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for room in rooms():
        files.append(File.generated(config, f"api/{room}.md", content=reference(room)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The drawing becomes part of its page, where it follows the page's light and dark.

    Texts point to results/ beside their folder, as in the repository; on the site it lies inside.
    """
    markdown = markdown.replace("](../results/", "](results/")
    drawing = (ROOT / "docs" / "network.svg").read_text()
    return re.sub(r"!\[[^]]*\]\(network\.svg\)", lambda _: f"<div>{drawing}</div>", markdown)


def rooms() -> list[str]:
    """As `docs/architecture.md` draws them, from the top: those that are folders."""
    drawn = re.findall(r"^ ([a-z]+(?:  [a-z]+)*)  ", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    names = [room for line in drawn for room in line.split()]
    return [room for room in names if (ROOT / "prism" / room / "__init__.py").exists()]


def reference(room: str) -> str:
    """A page: what the room is for, and each of its modules."""
    folder = ROOT / "prism" / room
    about = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    return "\n\n".join([f"# prism.{room}", about, *(f"::: prism.{room}.{module}" for module in modules)])
