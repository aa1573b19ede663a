"""Options are checked by their annotations alone: finite, in their range, and used for what they say."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from PIL import Image

from prism.cli import main
from prism.commands.parsing import parse
from prism.model.checks import Range, check_options
from prism.tasks.registry import recipes

SCENES = ("train", "scenes", "--steps", "1", "--size", "32", "--batch", "4", "--length", "8", "--workers", "0")


def refused(words: Iterable[str], capsys) -> str:
    """The sentence that a command ends with; a recipe's own is a usage error, which the parser puts into a box."""
    with pytest.raises(SystemExit) as stopped:
        main([*words])
    if stopped.value.code == 2:
        return " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert isinstance(stopped.value.code, str)
    assert "\n" not in stopped.value.code
    return stopped.value.code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*SCENES, "--size", "0"), "size must be a whole number from 1 to 4096, got 0"),
        ((*SCENES, "--size", "-5"), "size must be a whole number from 1 to 4096, got -5"),
        ((*SCENES, "--limit", "0"), "limit must be a whole number from 1"),
        ((*SCENES, "--device", "banana"), "the device 'banana' cannot be used"),
        ((*SCENES, "--device", "meta"), "the device 'meta' cannot be used"),
        ((*SCENES, "--device", "cuda:63"), "the device 'cuda:63' cannot be used"),
        ((*SCENES, "--device", "privateuseone"), "the device 'privateuseone' cannot be used"),
        (("eval", "prism_nano", "--data", "scenes", "--device", "cuda:63"), "the device 'cuda:63' cannot be used"),
        ((*SCENES, "--dry-run", "--device", "banana"), "the device 'banana' cannot be used"),
        ((*SCENES, "--warmup", "inf"), "warmup must be a number from 0 to 1e+09, got inf"),
        ((*SCENES, "--scattered", "nan"), "scattered must be a number from 0 to 1, got nan"),
        ((*SCENES, "--mixup", "nan"), "mixup must be a number"),
        ((*SCENES, "--smoothing", "inf"), "smoothing must be a number from 0 to 1, got inf"),
        ((*SCENES, "--jitter", "inf"), "jitter must be a number"),
        ((*SCENES, "--betas", "0.9", "nan"), "betas must be a number"),
        ((*SCENES, "--randaugment", "banana"), "timm does not know the policy 'banana'"),
        ((*SCENES, "--model", "vit_tiny_patch16_224"), "vit_tiny_patch16_224 does not take images of 32 x 32 pixels"),
        (("train", "scenes-semfpn", "--scales", "inf", "inf"), "scales must be a number from 0.05 to 10, got inf"),
        (("train", "scenes-semfpn", "--dropout", "nan"), "dropout must be a number from 0 to 1, got nan"),
        (("train", "scenes-semfpn", "--dry-run", "--classes", "300", "--size", "32"), "at most 255 classes, got 300"),
        (("train", "scenes-retinanet", "--sizes", "0"), "sizes must be a whole number from 1 to 4096, got 0"),
        (("info", "prism_nano", "--steps", "nan"), "numbers from 1 to 1000, got 'nan'"),
        (("info", "vit_tiny_patch16_224", "--size", "64"), "does not take images of 64 x 64 pixels"),
        (("info", "prism_nano", "--size", "99999"), "whole numbers from 1 to 4096, got '99999'"),
        (("speed",), "name at least one model"),
        (("speed", "prism_nano", "--threads", "-1"), "threads must be a whole number from 1 to 1024, got -1"),
        (("speed", "vit_tiny_patch16_224", "--size", "64"), "does not take images of 64 x 64 pixels"),
        (("predict",), "name at least one image"),
        (("predict", "{folder}/a.png", "--size", "0"), "size must be a whole number from 1 to 4096, got 0"),
        (("eval", "prism_nano", "--data", "scenes", "--size", "0"), "size must be a whole number"),
        (("eval", "prism_nano", "--data", "scenes", "--workers", "-1"), "workers must be a whole number"),
        (("occlusion", "prism_nano", "--data", "scenes", "--seeds", "nan"), "got 'nan'"),
    ],
)
def test_a_wrong_option_is_one_sentence(words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    assert said in refused((word.format(folder=tmp_path) for word in words), capsys)
    assert not [*tmp_path.rglob("*.safetensors")]


@dataclass
class Later:
    """Options that somebody might add one day."""

    count: int = 1
    share: Annotated[float, Range(0, 1)] | None = None
    sides: tuple[Annotated[int, Range(1, 9)], ...] = ()


@pytest.mark.parametrize("wrong", [dict(count=-1), dict(share=1.5), dict(share=float("nan")), dict(sides=(1, 10))])
def test_a_new_option_is_checked_for_free(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be a (whole )?number from"):
        check_options(Later(**wrong))
    check_options(Later(3, 0.5, (1, 9)))


def test_every_recipe_keeps_its_own_rules():
    for make in recipes().values():
        check_options(make())


def test_the_parser_checks_every_function():
    def command(wide: float = 1.0) -> None:
        raise AssertionError("called")

    with pytest.raises(ValueError, match="wide must be a number from 0"):
        parse(command, ["--wide", "nan"], "toy")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 bytes.")])
def test_too_little_memory_is_one_sentence(error: Exception, monkeypatch, capsys):
    monkeypatch.setattr("prism.commands.recipes.recipes", lambda: (_ for _ in ()).throw(error))
    assert refused(["recipes"], capsys).startswith("prism: not enough memory")


def test_an_error_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr("prism.commands.recipes.recipes", lambda: (_ for _ in ()).throw(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main(["recipes"])
