"""A task, a mask, a baseline, a study and a recipe are each one file or folder and its registration."""

from pathlib import Path

import pytest
from PIL import Image

from prism.cli import main
from prism.occlusion import MASKS
from prism.reporting.tables import read_csv
from prism.studies.catalogue import STUDIES, Study
from prism.tasks.classification.recipes import RECIPES
from prism.tasks.registry import TASKS

SCENES = ["--data", "scenes", "--limit", "3", "--workers", "0"]


def test_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(TASKS, "brightness", "tests.extensions.brightness")
    run = tmp_path / "run"
    main(["train", "bright-scenes", "--dry-run"])
    assert "next to nothing" in capsys.readouterr().out
    main(["train", "bright-scenes", "--lr", "0.1", "--out", str(run)])
    weights = str(run / "best.safetensors")
    main(["eval", weights, *SCENES, "--out", str(tmp_path)])
    assert read_csv(tmp_path / "brightness.csv")[0]["split"] == "val"
    main(["occlusion", weights, *SCENES, "--gamma", "2", "--settings", "BlockMask112", "--out", str(tmp_path / "o")])
    assert [row["setting"] for row in read_csv(tmp_path / "o" / "brightness.csv")] == ["clean", "BlockMask112"]
    with pytest.raises(SystemExit, match="--gamma is only for brightness"):
        main(["occlusion", "resnet10t", *SCENES, "--gamma", "2"])
    Image.new("RGB", (8, 8), "white").save(tmp_path / "white.png")
    with pytest.raises(SystemExit, match="is for brightness, not for classification"):
        main(["predict", str(tmp_path / "white.png"), "--checkpoint", weights])


def test_a_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prism.occlusion.settings.MASKS", MASKS)
    import tests.extensions.stripes  # noqa: F401  registers it

    settings = ["--settings", "Stripes4,PatchMask0.6", "--size", "32"]
    main(["occlusion", "resnet10t", *SCENES, *settings, "--out", str(tmp_path)])
    assert [row["setting"] for row in read_csv(tmp_path / "occlusion.csv")] == ["clean", "Stripes4", "PatchMask0.6"]
    del MASKS["Stripes"]
    with pytest.raises(SystemExit, match="masks are PatchMask, BlockMask, OnlyOne, M; got 'Stripes4'"):
        main(["occlusion", "resnet10t", *SCENES, *settings, "--out", str(tmp_path)])


def test_a_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import tests.extensions.one_layer  # noqa: F401  registers it with timm

    main(["info", "one_layer", "--size", "32"])
    assert "head" in capsys.readouterr().out
    main(["occlusion", "one_layer", "resnet10t", *SCENES, "--size", "32", "--out", str(tmp_path)])
    assert "one_layer" in (tmp_path / "report.html").read_text()


def test_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(STUDIES, "count", Study("count", "Count", module="tests.extensions.count_study"))
    main(["study", "list"])
    assert "how many images are there?" in capsys.readouterr().out
    main(["study", "count", "resnet10t", "--limit", "3", "--workers", "0", "--out", str(tmp_path)])
    assert "There are 3 images." in (tmp_path / "report.html").read_text()


def test_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from tests.extensions.tiny_recipe import tiny_scenes

    monkeypatch.setitem(RECIPES, "tiny-scenes", tiny_scenes)
    main(["recipes"])
    assert "Two steps on scenes." in capsys.readouterr().out
    main(["train", "tiny-scenes", "--epochs", "1", "--out", str(tmp_path)])
    assert (tmp_path / "best.safetensors").exists()
