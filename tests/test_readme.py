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
    "occlusion-detection": "--limit 4 --workers 0",
    "occlusion-segmentation": "--limit 4 --workers 0",
    "eval": "--limit 8 --workers 0",
    "occlusion": "--limit 8 --workers 0",
    "speed": "--size 32 --repeats 2",
}


def commands() -> list[str]:
    return [line.partition("#")[0].strip() for line in README.splitlines() if line.startswith("prism ")]


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
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 3
    scope: dict[str, object] = {}
    for block in blocks:
        exec(block, scope)


def test_commands_run(folder: Path):
    assert len(commands()) >= 10
    for line in commands():
        _, verb, *words = shlex.split(line)
        short = SHORTER.get(f"{verb} {words[0]}", SHORTER.get(verb, "")) if words and "--dry-run" not in words else ""
        main([verb, *words, *short.split()])
    assert (folder / "runs" / "scenes" / "report.html").exists()
    assert (folder / "runs" / "occlusion" / "report.html").exists()


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
