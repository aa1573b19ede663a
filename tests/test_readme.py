"""What the README shows works: its Python blocks and its commands run, one after the other, as a reader would type."""

import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import timm
import yaml
from PIL import Image
from safetensors.torch import save_file

import prism
from prism.cli import main
from prism.commands import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MOST_WORDS = 900

# what makes a command of minutes one of seconds
SHORTER = {
    "train": "--size 32 --batch 8 --steps 2 --limit 8 --workers 0",
    "eval": "--limit 8 --workers 0",
    "feed": "--size 32 --batch 8 --workers 0",
    "occlusion": "--limit 8 --workers 0",
    "study": "--limit 4 --workers 0 --quick",
}


def commands(text: str) -> list[list[str]]:
    """Words of every line that is a command, by itself or started by a launcher."""
    lines = (line for line in text.splitlines() if line.startswith(("prism ", "accelerate launch ", "torchrun ")))
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[1 + words.index("prism" if words[0] == "prism" else "prism.cli") :] for words in found]


def python_blocks(text: str) -> list[tuple[str, str]]:
    """Pairs of what stands beside the word python, and the code."""
    return re.findall(r"```python *([^\n]*)\n(.*?)```", text, flags=re.DOTALL)


def run_shortened(words: list[str]) -> None:
    main([*words, *("" if "--dry-run" in words else SHORTER.get(words[0], "")).split()])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder, with the files that the README speaks of."""
    monkeypatch.chdir(tmp_path)
    Image.effect_noise((80, 60), 50).save("photo.jpg")
    save_file(timm.create_model("resnet18", num_classes=10).state_dict(), "a.safetensors")
    return tmp_path


def test_python_blocks_run():
    [(_, block)] = python_blocks(README)
    exec(block, {})


def test_commands_run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    opened = []
    monkeypatch.setattr(app, "app", lambda: opened.append("app"))  # tests/app opens it in a browser
    assert len(commands(README)) == 5
    for words in commands(README):
        run_shortened(words)
    assert opened == ["app"]
    for place in ("scenes", "occlusion", "study/halting"):
        assert (folder / "runs" / place / "report.html").exists()


def test_linked_files_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_it_is_short():
    assert len(README.split()) <= MOST_WORDS


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == prism.__version__
    [paper] = cited["references"]
    assert paper["title"] in README.replace("{{PRISM}}", "PRISM")


def test_the_demo_makes_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its commands in this process and shortened; that an interrupted training resumes is tested beside the loop."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prism").symlink_to(ROOT / "prism")
    spec: Any = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    for command in (demo.OCCLUSION, demo.SLOTS, demo.TRAINING):
        run_shortened(shlex.split(command)[1:])
    demo.report()
    page = (tmp_path / demo.OUT / "report.html").read_text()
    assert re.search(r'<p class="summary">prism_nano keeps \d+ % of its accuracy behind a 112 px block', page)
    assert page.index("<img") < page.index("<table")
    assert page.count("data:image/png") == 4
    assert "(paper" not in page


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = json.loads((ROOT / "examples" / "occlusion.ipynb").read_text())
    scope: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace("limit = 100", "limit = 4"), scope)
    assert sum(len(cell.get("outputs", ())) for cell in notebook["cells"]) == 5, "it shows what it draws and prints"
    assert len(scope["rows"]) == 7 * len(scope["networks"]) > 0
