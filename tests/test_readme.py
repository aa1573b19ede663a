"""What the README shows works: its Python blocks and its commands run, one after the other, as a reader would type."""

import re
import shlex
from pathlib import Path

import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from prism.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

# what makes a command of hours one of seconds
TRAINING = "--size 32 --batch 8 --steps 2 --limit 8 --workers 0"
SHORTER = {
    "train": TRAINING,
    "train scenes-retinanet": "--sizes 64 --longest 64 --batch 4 --steps 1 --length 8 --limit 4 --workers 0",
    "train scenes-semfpn": "--size 32 --batch 4 --steps 1 --length 8 --limit 4 --workers 0",
    "eval": "--limit 8 --workers 0",
    "occlusion": "--limit 8 --workers 0",
    "speed": "--size 32 --repeats 2",
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """A reader's folder, with the files that the README speaks of."""
    monkeypatch.chdir(tmp_path)
    Image.effect_noise((80, 60), 50).save("photo.jpg")
    for split in ("train", "val"):
        for number in range(2):
            place = tmp_path / "imagenette2-160" / split / f"class{number}"
            place.mkdir(parents=True)
            for index in range(8):
                Image.effect_noise((50, 40), 50).save(place / f"{index}.png")
    for name in ("a", "b"):
        save_file(timm.create_model("resnet18", num_classes=10).state_dict(), f"{name}.safetensors")
    return tmp_path


def test_python_blocks_run():
    blocks = python_blocks(README)
    assert len(blocks) >= 3
    scope: dict[str, object] = {}
    for _, block in blocks:
        exec(block, scope)


def test_commands_run(folder: Path):
    assert len(commands(README)) >= 10
    for verb, *words in commands(README):
        short = SHORTER.get(f"{verb} {words[0]}", SHORTER.get(verb, "")) if words and "--dry-run" not in words else ""
        main([verb, *words, *short.split()])
    assert (folder / "runs" / "scenes" / "report.html").exists()
    assert (folder / "runs" / "occlusion" / "report.html").exists()


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
