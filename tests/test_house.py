"""The house stays in order: folders import only from those before them, and the project speaks of itself alone."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# docs/architecture.md draws the rooms from the top down, one or two to a line
DRAWING = (ROOT / "docs" / "architecture.md").read_text()
ORDER = " ".join(re.findall(r"^ ([a-z]+(?:  [a-z]+)*)  ", DRAWING, re.MULTILINE)).split()
FILES = sorted((ROOT / "prism").rglob("*.py"))
LONGEST = 350  # lines of a file


def imported_rooms(source: str) -> set[str]:
    """The rooms of the house that a module imports, however it spells it; '' is the package itself."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            base = node.module or ""
            modules |= {f"{base}.{alias.name}" for alias in node.names} if base == "prism" else {base}
    ours = [module.split(".") for module in modules if module.split(".")[0] == "prism"]
    return {parts[1] if len(parts) > 1 and parts[1] in ORDER else "" for parts in ours}


def room_of(path: Path) -> str:
    part = path.relative_to(ROOT / "prism").parts[0]
    return part.removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_descend(path: Path):
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    allowed = {*ORDER[: ORDER.index(room) + 1]} | ({""} if room == "cli" else set())
    assert imported_rooms(path.read_text()) <= allowed


def test_the_check_sees_a_climbing_import():
    assert imported_rooms("from prism.cli import main") == {"cli"}
    assert imported_rooms("import prism.training.loop") == {"training"}
    assert imported_rooms("from prism import Prism") == {""}
    assert imported_rooms("from prism import data") == {"data"}


def test_every_folder_is_a_known_room():
    found = {room_of(path) for path in FILES} - {"__init__"}
    assert found <= set(ORDER)
    assert ORDER[0] == "model"
    assert ORDER[-1] == "cli"


def test_a_file_is_one_idea():
    assert not [path for path in FILES if len(path.read_text().splitlines()) > LONGEST]


def test_the_drawing_fits_on_one_screen():
    assert len(DRAWING.splitlines()) <= 50


def test_importing_the_package_imports_the_networks_alone():
    """Of ours the model and the baselines, which timm knows by this import; of others nothing that an extra brings."""
    code = "import sys, prism; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[1] for name in found if name.startswith("prism.")} == {"model", "baselines"}
    assert not {name.partition(".")[0] for name in found} & {"accelerate", "pandas", "matplotlib", "rich", "tyro"}
