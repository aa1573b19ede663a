"""The commands as a user types them."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import save_file

from prism.cli import main
from tests.model.small import small_prism


def succeed(*arguments: str) -> str:
    command = [sys.executable, "-m", "prism.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_info_of_prism_and_of_a_timm_model():
    ours = succeed("info", "prism_nano", "--size", "64x96")
    assert "stages.3.token_ffn" in ours
    assert "2.5, 3.2, 3.7, 2.5" in ours
    assert "layer4" in succeed("info", "resnet18", "--size", "64")


def test_speed_writes_its_tables(tmp_path: Path):
    out = tmp_path / "a" / "b"
    succeed("speed", "prism_nano", "prism_nano@5", "resnet10t", "--size", "32", "--batch", "1,2", "--repeats", "2",
            "--steps", "2.5,3.2,3.7,2.5", "--threads", "1", "--out", str(out))  # fmt: skip
    with (out / "speed.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["prism_nano"] * 2 + ["prism_nano@5"] * 2 + ["resnet10t"] * 2
    assert float(rows[2]["GMAC"]) > float(rows[0]["GMAC"])
    assert "prism speed prism_nano" in (out / "speed.md").read_text()


def test_slots_of_a_scene_and_of_a_photograph(tmp_path: Path):
    succeed("slots", "--size", "64", "--out", str(tmp_path / "scene"))
    Image.new("L", (50, 80), 90).save(tmp_path / "grey.png")
    succeed("slots", str(tmp_path / "grey.png"), "--size", "64", "--out", str(tmp_path / "photo"))
    for name in ("scene", "photo"):
        with Image.open(tmp_path / name / "slots.png") as figure:
            assert min(figure.size) > 300
        with (tmp_path / name / "slots.csv").open() as file:
            assert [row["grid"] for row in csv.DictReader(file)] == ["16x16", "8x8", "4x4", "2x2"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("info", "no_such_model"), "no model is called 'no_such_model'"),
        (("info", "prism_nano", "--size", "16"), "at least 32 x 32, got 16 x 16"),
        (("info", "prism_nano", "--size", "wide"), "numbers separated by commas, got 'wide'"),
        (("info", "prism_nano", "--steps", "1,2"), "one number or 4, got '1,2'"),
        (("speed", "resnet10t@3"), "resnet10t has no steps to force"),
        (("speed", "prism_nano@9"), "between 1 and 5, got 9.0"),
        (("speed", "prism_nano", "--dtype", "int8"), "dtype must be float32 or bfloat16, got 'int8'"),
        (("speed", "prism_nano", "--batch", "0"), "whole numbers from 1 to 4096, got '0'"),
        (("speed", "prism_nano", "--repeats", "1"), "repeats must be a whole number from 2 to 1000, got 1"),
        (("slots", "{folder}/missing.png"), "missing.png"),
        (("slots", "{folder}/text.png"), "text.png cannot be read as an image"),
        (("slots", "--checkpoint", "{folder}/text.png"), "text.png is not a file of weights"),
        (("slots", "--checkpoint", "{folder}/small.safetensors"), "checkpoint is from a different model"),
        (("slots", "--model", "resnet10t"), "resnet10t has no slots"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path):
    (tmp_path / "text.png").write_text("this is not an image")
    save_file(small_prism().state_dict(), tmp_path / "small.safetensors")
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(folder=tmp_path) for argument in arguments])
    message = stopped.value.code  # a string: printed to stderr, exit status 1
    assert isinstance(message, str)
    assert message.startswith("prism: ")
    assert sentence in message
    assert "\n" not in message


def test_an_error_leaves_the_process_with_a_status_and_no_traceback():
    command = [sys.executable, "-m", "prism.cli", "info", "no_such_model"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.startswith("prism: no model is called 'no_such_model'")
    assert len(done.stderr.strip().splitlines()) == 1
