"""Commands that open trained models: eval, predict, and files that say themselves what they are."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from prism.cli import main
from prism.data.scenes import SHAPES

CLASSES = ["a", "b", "c"]
ABOUT = {"model": "prism_nano", "network": "max_steps=2", "classes": json.dumps(CLASSES), "size": "32"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Splits of images, of which `val` lacks a class and has one c for two a; and checkpoints good and bad."""
    place, random = tmp_path_factory.mktemp("place"), np.random.default_rng(0)
    for path in ("train/a/1", "train/b/1", "train/c/1", "val/a/1", "val/a/2", "val/c/1", "val_hidden/b/1"):
        (place / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (40, 50, 3), np.uint8)).save(place / "data" / f"{path}.png")
    (place / "empty").mkdir()
    (place / "hollow" / "a").mkdir(parents=True)
    (place / "spoilt" / "a").mkdir(parents=True)
    (place / "spoilt" / "a" / "spoilt.png").write_text("no image")
    (place / "text.safetensors").write_text("no weights")
    torch.manual_seed(0)
    ours = timm.create_model("prism_nano", num_classes=3).state_dict()
    save_file(ours, place / "best.safetensors", ABOUT)
    save_file(ours, place / "mute.safetensors")
    save_file(ours, place / "garbled.safetensors", {"model": "prism_nano", "size": "large"})
    save_file(ours, place / "shapes.safetensors", ABOUT | {"classes": '["x", "y", "z"]'})
    save_file(ours | {"head.fc.bias": torch.full((3,), torch.nan)}, place / "nan.safetensors", ABOUT)
    save_file({f"x.{name}": value for name, value in ours.items()}, place / "keys.safetensors", ABOUT)
    theirs = timm.create_model("resnet10t", num_classes=3).state_dict()
    theirs["fc.bias"] = torch.tensor([0.0, 0.0, 100.0])  # whatever it sees, it says c
    save_file(theirs, place / "always_c.safetensors")
    return place


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_eval_numbers_classes_as_train_does_and_balances_them(place: Path, tmp_path: Path):
    main(["eval", f"resnet10t={place}/always_c.safetensors", "--data", f"{place}/data", "--split", "val,val_hidden",
          "--size", "32", "--workers", "0", "--out", str(tmp_path)])  # fmt: skip
    val, hidden = rows(tmp_path / "accuracy.csv")
    assert (val["split"], val["images"], hidden["split"], hidden["images"]) == ("val", "3", "val_hidden", "1")
    assert float(val["top-1"]) == pytest.approx(100 / 3)
    assert float(val["balanced"]) == 50
    assert float(hidden["top-1"]) == float(hidden["balanced"]) == 0
    assert float(hidden["calibration error"]) == pytest.approx(100, abs=0.1)
    assert float(val["GMAC"]) > 0
    assert "steps 1" not in val, "it takes none"
    assert "prism " in (tmp_path / "accuracy.md").read_text()


def test_eval_of_a_file_that_says_what_it_is(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["eval", f"{place}/best.safetensors", "--data", f"{place}/data", "--split", "val", "--fixed-steps", "1,2,3,2",
          "--memory", "off", "--workers", "0", "--out", str(tmp_path)])  # fmt: skip
    [row] = rows(tmp_path / "accuracy.csv")
    assert row["model"] == "prism_nano"
    assert [float(row[f"steps {stage}"]) for stage in range(1, 5)] == [1, 2, 3, 2]
    assert "balanced" in capsys.readouterr().out
    main(["eval", "resnet10t", "--data", "scenes", "--split", "val", "--limit", "2", "--size", "32", "--workers", "0"])


def test_occlusion_of_a_file_on_scenes(tmp_path: Path):
    weights = timm.create_model("resnet10t", num_classes=len(SHAPES)).state_dict()
    save_file(weights, tmp_path / "w.safetensors", {"model": "resnet10t", "classes": json.dumps(SHAPES), "size": "32"})
    main(["occlusion", f"{tmp_path}/w.safetensors", "--data", "scenes", "--limit", "3", "--workers", "0",
          "--out", str(tmp_path)])  # fmt: skip
    found = rows(tmp_path / "occlusion.csv")
    assert {(row["model"], row["run"], row["images"]) for row in found} == {("resnet10t", f"{tmp_path}/w", "3")}


def test_predict_and_slots(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    images = [f"{place}/data/val/a/1.png", f"{place}/data/val/c/1.png"]  # of one name: neither figure is lost
    main(["predict", *images, "--checkpoint", f"{place}/best.safetensors", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "predictions.json").read_text())
    assert [entry["image"] for entry in found] == images
    for entry in found:
        assert sorted(choice["class"] for choice in entry["choices"]) == CLASSES
        assert sum(choice["probability"] for choice in entry["choices"]) == pytest.approx(1)
        assert len(entry["steps"]) == 4
    for name in ("1-1.png", "2-1.png"):
        with Image.open(tmp_path / name) as figure:
            assert min(figure.size) > 300
    main(["predict", images[0], "--model", "resnet10t", "--checkpoint", f"{place}/always_c.safetensors", "--size",
          "32", "--out", str(tmp_path)])  # fmt: skip
    assert "class 2 100.0%" in capsys.readouterr().out
    main(["slots", "--checkpoint", f"{place}/best.safetensors", "--out", str(tmp_path)])
    assert rows(tmp_path / "slots.csv")[0]["grid"] == "8x8"  # at the 32 px that the file says


EVAL = ("eval", "{place}/best.safetensors", "--workers", "0", "--data")
PREDICT = ("predict", "{place}/data/val/a/1.png", "--checkpoint")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((*EVAL, "{place}/data"), "data holds splits, not classes: add --split val"),
        ((*EVAL, "{place}/data", "--split", "vial"), "data has no split 'vial'; it has train, val"),
        ((*EVAL, "{place}/empty"), "empty"),
        ((*EVAL, "{place}/hollow"), "there are no labelled images in {place}/hollow"),
        ((*EVAL, "{place}/spoilt"), "spoilt.png cannot be read as an image"),
        ((*EVAL, "{place}/spoilt", "--workers", "1"), "spoilt.png cannot be read as an image"),
        ((*EVAL, "{place}/data", "--split", "val", "--memory", "lost"), "got 'lost'"),
        ((*EVAL, "{place}/data", "--split", "val", "--fixed-steps", "1,2"), "one number or 4, got [1, 2]"),
        ((*EVAL, "{place}/data", "--split", "val", "--batch", "0"), "batch must be a whole number from 1"),
        ((*EVAL, "{place}/data", "--split", "val", "--device", "abacus"), "device 'abacus' cannot be used"),
        ((*EVAL, "scenes"), "best.safetensors knows 3 classes, which are not the"),
        ((*EVAL, "scenes", "--split", "old"), "not 'old'"),
        (("eval", "resnet10t", "--data", "scenes", "--memory", "off"), "are only for PRISM, not for resnet10t"),
        (("eval", "resnet10t={place}/always_c.safetensors", "--data", "scenes"), "always_c.safetensors knows 3"),
        (("eval", "{place}/shapes.safetensors", "--data", "{place}/data", "--split", "val"), "has a class 'a' that is"),
        (("eval", "{place}/best.safetensors", "{place}/shapes.safetensors", "--data", "{place}/data", "--split", "val"),
         "shapes.safetensors knows 3 classes, which are not the 3 of the data"),
        (("eval", "deit_tiny_patch16_224", "--data", "scenes", "--size", "32", "--workers", "0"), "does not take"),
        (("occlusion", "{place}/mute.safetensors", "--data", "scenes"), "mute.safetensors does not say which model"),
        (("occlusion", "resnet10t", "--data", "scenes", "--shares", "0.3"), "--shares is only for detection"),
        (("occlusion", "--data", "scenes"), "name at least one model"),
        (("occlusion", "{place}/best.safetensors", "--data", "scenes", "--task", "detection"),
         "best.safetensors is for classification, not for detection"),
        (("occlusion", "{place}/gone.safetensors", "--data", "scenes"), "there is no checkpoint {place}/gone"),
        ((*PREDICT, "{place}/gone.safetensors"), "there is no checkpoint {place}/gone.safetensors"),
        ((*PREDICT, "{place}/text.safetensors"), "text.safetensors is not a safetensors file"),
        ((*PREDICT, "{place}/mute.safetensors"), "mute.safetensors does not say which model its weights belong to"),
        ((*PREDICT, "{place}/mute.safetensors", "--model", "resnet10t"), "mute.safetensors does not fit"),
        ((*PREDICT, "{place}/best.safetensors", "--model", "resnet10t"), "weights of prism_nano, not of resnet10t"),
        ((*PREDICT, "{place}/keys.safetensors"), "does not fit: the checkpoint is from a different model"),
        ((*PREDICT, "{place}/nan.safetensors"), "holds a weight that is not a finite number, in 'head.fc.bias'"),
        ((*PREDICT, "{place}/garbled.safetensors"), "invalid metadata in {place}/garbled.safetensors: size"),
        (("predict", "{place}/none.png", "--checkpoint", "{place}/best.safetensors"), "there is no image"),
        (("predict", "{place}/spoilt/a/spoilt.png", "--checkpoint", "{place}/best.safetensors"), "spoilt.png cannot"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, place: Path, tmp_path: Path):
    words = [argument.format(place=place) for argument in arguments]
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--out", str(tmp_path)])
    message = stopped.value.code
    assert isinstance(message, str)
    assert message.startswith("prism: ")
    assert sentence.format(place=place) in message
    assert "\n" not in message
