"""Recipes of classification: what they build from settings and data, and what they refuse."""

import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from safetensors import safe_open

from prism.cli import main
from prism.data.sources import open_images
from prism.model.metadata import read_metadata
from prism.tasks.classification.recipes import imagenet, imagenette, scenes
from prism.tasks.classification.task import TASK
from prism.tasks.registry import recipes
from prism.training import loop
from prism.training.run import rehearse
from prism.training.run import train_recipe as run
from tests.training.small import NETWORK, small_recipe

TEN = [f"class {number}" for number in range(10)]
RECIPES = recipes()


def folder_of_classes(root: Path, classes: int = 3, each: int = 8) -> Path:
    for split in ("train", "val"):
        for number in range(classes):
            (root / split / f"class{number}").mkdir(parents=True)
            for index in range(each):
                image = Image.new("RGB", (40 + index, 36), (60 * number, 10 * index, 0))
                image.save(root / split / f"class{number}" / f"{index}.png")
    return root


def test_the_papers_recipe():
    recipe = imagenet()
    assert (recipe.model, recipe.epochs, recipe.batch, recipe.lr) == ("prism_tiny", 300, 1024, 1e-3)
    assert (recipe.betas, recipe.weight_decay, recipe.warmup, recipe.size) == ((0.9, 0.999), 0.05, 5, 224)
    assert (recipe.ponder, recipe.vq, recipe.smoothing, recipe.schedule) == (0.005, 0.01, 0.1, "cosine")
    assert (recipe.mixup, recipe.cutmix, recipe.erasing, recipe.hiding) == (0.8, 1.0, 0.25, True)


def test_no_hiding_switches_erasing_and_cutmix_off():
    shown = replace(imagenet(), network=NETWORK, model="prism_nano", hiding=False)
    assert TASK.learner(shown, TEN).mixing.cutmix_alpha == 0  # pyright: ignore
    assert TASK.learner(replace(shown, hiding=True), TEN).mixing.cutmix_alpha == 1  # pyright: ignore
    assert TASK.learner(imagenette(), TEN).mixing is None


def test_hiding_covers_cells_of_some_images_in_training_only(tmp_path: Path):
    data = str(folder_of_classes(tmp_path / "data"))
    blank = {}
    for hiding in (False, True):
        recipe = small_recipe(tmp_path / str(hiding), data=data, length=None, hiding=hiding, scattered=0.5, size=32)
        batches = list(TASK.job(recipe, Accelerator(cpu=True)).stream.epoch(0))
        images = torch.cat([batch.images for batch in batches])
        blank[hiding] = (images == 0).all(1).flatten(1).float().mean(1)  # of each image, the share that is hidden
    assert not blank[False].any()
    assert 0.2 < (blank[True] > 0).float().mean() < 0.8


def test_a_folder_trains_any_timm_model_and_names_its_classes(tmp_path: Path):
    data = folder_of_classes(tmp_path / "data")
    recipe = small_recipe(tmp_path / "run", data=str(data), model="resnet10t", network=(), epochs=1, length=None)
    rows = run(recipe)
    assert "val top-1" in rows[-1]
    found = read_metadata(recipe.out / "best.safetensors")
    assert found.classes == ["class0", "class1", "class2"]
    assert found.network == {}


def test_what_is_held_out_is_evaluated_and_never_trained_on(tmp_path: Path):
    data = str(folder_of_classes(tmp_path / "data"))
    held, rest, whole = (
        [images.name(n) for n in range(len(images))]
        for images in (open_images(data, split) for split in ("held-out", "rest", "train"))
    )
    assert sorted(held + rest) == sorted(whole)
    assert len(held) == 5  # of 24
    recipe = small_recipe(tmp_path / "run", data=data, epochs=1, length=None, hold_out=True)
    assert "held-out top-1" in run(recipe)[-1]
    job = TASK.job(recipe, Accelerator(cpu=True))
    assert not {name for batch in job.stream.epoch(0, 0) for name in batch.names} & {*held}


def test_shards_train_and_are_evaluated(tmp_path: Path):
    for split in ("train", "val"):
        with tarfile.open(tmp_path / f"{split}-0.tar", "w") as archive:
            for number in range(16):
                buffer = BytesIO()
                Image.new("RGB", (40, 36), (15 * number, 0, 0)).save(buffer, "PNG")
                for name, content in ((f"{number}.png", buffer.getvalue()), (f"{number}.cls", b"%d" % (number % 2))):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    archive.addfile(info, BytesIO(content))
    recipe = small_recipe(tmp_path / "run", data=str(tmp_path), epochs=1, length=16, classes=2)
    assert 0 <= run(recipe)[-1]["val top-1"] <= 100
    with pytest.raises(ValueError, match="how many classes"):
        TASK.job(replace(recipe, classes=None), loop.start(recipe))


def test_finetuning_keeps_all_but_a_head_of_another_size(tmp_path: Path):
    first = small_recipe(tmp_path / "first", epochs=1)
    run(first)
    weights = tmp_path / "first" / "last.safetensors"
    found = TASK.learner(replace(first, weights=weights, seed=5), TEN[:3]).network.state_dict()
    with safe_open(weights, "pt") as file:
        key = "stages.0.tokeniser.conv.weight"
        torch.testing.assert_close(found[key], file.get_tensor(key))
        assert file.get_tensor("head.fc.weight").shape[0] != found["head.fc.weight"].shape[0] == 3


def test_an_unreadable_image_stops_an_evaluation_in_one_sentence(tmp_path: Path, capsys):
    data = folder_of_classes(tmp_path / "data")
    (data / "val" / "class1" / "3.png").write_bytes(b"nothing")
    words = ["--data", str(data), "--model", "resnet10t", "--length", "None", "--splits", "val", "--batch", "8"]
    words += ["--size", "32", "--epochs", "1", "--workers", "1", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as stop:
        main(["train", "scenes", *words])
    assert str(stop.value).startswith("prism: ")
    assert str(stop.value).count("\n") == 0
    assert "class1/3.png cannot be read as an image" in str(stop.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (dict(model="prism_nanno"), "no model is called 'prism_nanno'"),
        (dict(network=("depth=3",)), "network has no argument 'depth'"),
        (dict(network=("depth",)), "KEY=VALUE"),
        (dict(data="nowhere"), "nowhere"),
        (dict(splits=("test",)), "test"),
        (dict(classes=4), "has 10 classes, not 4"),
        (dict(batch=64), "a batch of 64 needs as many samples"),
    ],
)
def test_what_cannot_be_built_is_said(tmp_path: Path, changes, sentence):
    recipe = small_recipe(tmp_path, **changes)
    with pytest.raises((ValueError, OSError), match=sentence):
        TASK.job(recipe, loop.start(recipe))


@pytest.mark.parametrize("name", [name for name in RECIPES if not name.startswith("coco")])
def test_every_recipe_says_what_it_is(name):
    assert (RECIPES[name].__doc__ or "").count("\n") >= 2
    assert RECIPES[name]().out.parts[0] == "runs"


def test_a_rehearsal_needs_no_data():
    said = rehearse(replace(imagenet(), size=64))
    assert "10.68 M parameters" in said
    assert "vq" in said


def test_commands(capsys, tmp_path: Path):
    main(["recipes"])
    assert "imagenette" in capsys.readouterr().out
    main(["train", "imagenet", "--dry-run", "--size", "64", "--model", "prism_nano", "--out", str(tmp_path / "x")])
    assert "one step on noise" in capsys.readouterr().out
    assert not (tmp_path / "x").exists()


def test_arguments_of_a_model_are_obeyed_or_refused():
    """They were dropped without a word where the model was not PRISM."""
    recipe = replace(scenes(), model="resnet10t", size=32)
    assert recipe.network_words() == (), "the recipe's own are for PRISM"
    assert TASK.learner(replace(recipe, network=("drop_rate=0.25",)), TEN).network.drop_rate == 0.25  # pyright: ignore
    with pytest.raises(ValueError, match="resnet10t does not take these arguments"):
        TASK.learner(replace(recipe, network=("max_steps=2",)), TEN)
    assert scenes().network_words() == ("code_decay=0.9", "max_steps=3")
