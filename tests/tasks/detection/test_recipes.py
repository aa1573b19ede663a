import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from accelerate import Accelerator
from PIL import Image
from safetensors.torch import save_file

from prism.baselines.pyramid import PyramidBackbone
from prism.model.metadata import model_arguments, read_metadata
from prism.model.weights import halved, read_weights, shipped
from prism.tasks.detection import task as detection
from prism.tasks.detection.evaluate import Costs
from prism.tasks.detection.loading import load_detector
from prism.tasks.detection.recipes import Detection, scenes_retinanet
from prism.tasks.detection.task import TASK
from prism.tasks.registry import find_recipe, recipes
from prism.training.checkpoint import export
from prism.training.log import read_log
from prism.training.run import rehearse, train_recipe
from tests.data.test_coco import annotation, written

NAMES = [f"{data}-{head}" for data in ("coco", "voc", "scenes") for head in ("retinanet", "maskrcnn")]
TINY = dict(length=8, batch=4, epochs=1, limit=3, sizes=(64,), longest=64, width=16, workers=0, log_every=1, warmup=0.0)


def tiny(name: str, out: Path, **others: object) -> Detection:
    recipe = recipes()[name]()
    assert isinstance(recipe, Detection)
    return replace(recipe, out=out, **{**TINY, **others})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_listed_and_describes_itself(name: str):
    recipe = recipes()[name]()
    assert isinstance(recipe, Detection)
    assert recipe.out == Path("runs") / name
    assert f"prism train {name}" in (recipes()[name].__doc__ or "")


def test_the_papers_protocol():
    for name, rate in (("coco-retinanet", 1e-4), ("coco-maskrcnn", 2e-4)):
        recipe = recipes()[name]()
        assert isinstance(recipe, Detection)
        assert (recipe.epochs, recipe.batch, recipe.lr, recipe.weight_decay) == (12, 8, rate, 1e-4)
        assert (recipe.model, recipe.width, recipe.sizes, recipe.longest) == ("prism_tiny", 256, (800,), 1333)
        assert [round(recipe.rate(step, 12_000, 1000) / rate, 4) for step in (7_999, 8_000, 11_000)] == [1, 0.1, 0.01]


@pytest.mark.parametrize("name", ["scenes-retinanet", "scenes-maskrcnn"])
def test_a_dry_run_takes_one_step_on_noise(name: str, tmp_path: Path):
    said = rehearse(tiny(name, tmp_path))
    assert "one step on noise" in said
    assert said.endswith("GMAC at 64 x 64")
    assert "paper" not in said, "its detector is another"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "published"), [("coco-retinanet", 20.5), ("coco-maskrcnn", 31.4)])
def test_a_dry_run_of_the_papers_detectors_names_its_parameters(name: str, published: float, monkeypatch: Any):
    """With COCO's 80 classes; `tests/tasks` holds the parameters to the paper's."""
    recipe = recipes()[name]()
    assert isinstance(recipe, Detection)
    asked = []
    monkeypatch.setattr(detection, "costs", lambda *given, **_: asked.append(given) or Costs(20_360_000, 2e11))
    assert TASK.cost(recipe, recipe.classes or 0) == (
        f"20.4 M parameters (paper: {published} M), 200.0 GMAC at 800 x 1333"
    )
    assert asked == [(detection.design_of(recipe), 80, (800, 1333))]


def test_training_lowers_the_loss(tmp_path: Path):
    """prism_nano with RetinaNet, in 25 steps."""
    rows = train_recipe(tiny("scenes-retinanet", tmp_path, length=50, batch=2, lr=3e-3))
    steps = [row for row in read_log(tmp_path / "log.jsonl") if row["kind"] == "train"]
    losses = [row["classification"] + row["bbox_regression"] for row in steps]
    assert sum(losses[-4:]) < 0.85 * sum(losses[:4])
    assert 0 <= rows[-1]["val box AP"] <= 1
    assert {f"val box {name}" for name in ("AP", "AP50", "ARl")} <= {*rows[-1]}
    for name in ("best.safetensors", "report.html", "curves.png"):
        assert (tmp_path / name).exists()


def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path: Path):
    """With the first stage frozen."""
    common = dict(frozen=1, schedule="constant")
    train_recipe(tiny("scenes-retinanet", tmp_path / "whole", epochs=2, **common))
    train_recipe(tiny("scenes-retinanet", tmp_path / "parts", epochs=2, steps=3, **common))
    files = sorted((tmp_path / "parts" / "checkpoints").iterdir())
    state = torch.load(files[-1], weights_only=True)
    state["settings"] = state["settings"].replace('"steps": 3', '"steps": null')
    torch.save(state, files[-1])
    train_recipe(tiny("scenes-retinanet", tmp_path / "parts", epochs=2, **common))
    one, other = (load_detector(tmp_path / name / "last.safetensors").network for name in ("whole", "parts"))
    for (key, value), (_, again) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        torch.testing.assert_close(value, again, msg=lambda text, key=key: f"{key}: {text}")


def test_a_folder_with_coco_json_and_a_classifier_to_start_from(tmp_path: Path):
    (tmp_path / "data").mkdir()
    objects = [annotation(1), annotation(2, image_id=9), annotation(3, bbox=[50, 50, 1, 1])]
    file = written(tmp_path / "data", objects)
    (tmp_path / "data" / "instances_val.json").write_text(file.read_text())
    classifier = timm.create_model("prism_nano", num_classes=3)
    export(classifier.state_dict(), tmp_path / "classifier.safetensors", {"model": "prism_nano"})
    recipe = tiny(
        "voc-maskrcnn",
        tmp_path / "run",
        data=str(tmp_path / "data"),
        weights=tmp_path / "classifier.safetensors",
        batch=2,
        lr=1e-12,
        limit=None,
        network=(),
    )
    rows = train_recipe(recipe)
    assert {"val box AP", "val mask AP"} <= {*rows[-1]}
    loaded = load_detector(tmp_path / "run" / "last.safetensors")
    assert (loaded.classes, loaded.categories) == (["early", "late"], [7, 90])
    started = classifier.state_dict()
    for key, value in loaded.network.maps.backbone.body.named_parameters():
        torch.testing.assert_close(value, started[key], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["voc-retinanet", "voc-maskrcnn", "voc-semfpn"])
def test_recipes_for_photographs_start_from_the_weights_in_the_package(name: str, tmp_path: Path):
    """As their help says; and from what `prism export` makes of them."""
    weights = shipped("prism_nano")
    assert weights is not None
    save_file(halved(read_weights(weights)), tmp_path / "exported.safetensors")
    for path in (weights, tmp_path / "exported.safetensors"):
        backbone = PyramidBackbone("prism_nano", **model_arguments(find_recipe(name).network_words()))
        backbone.load(path)
        book = backbone.body.stages[0].step.memory.codebook  # pyright: ignore
        torch.testing.assert_close(book.sums, book.codes * book.counts[:, None], rtol=1e-3, atol=1e-2)


def test_tall_and_wide_images_do_not_share_a_batch(tmp_path: Path):
    sizes = [(20, 40), (40, 20)] * 3
    images = [dict(id=n, file_name=f"{n}.png", width=w, height=h) for n, (w, h) in enumerate(sizes)]
    file = written(tmp_path, [], images=images)
    (tmp_path / "instances_val.json").write_text(file.read_text())
    for n, size in enumerate(sizes):
        Image.new("RGB", size).save(tmp_path / "images" / f"{n}.png")
    recipe = tiny("voc-retinanet", tmp_path / "run", data=str(tmp_path), batch=3, network=())
    stream = TASK.job(recipe, Accelerator(cpu=True)).stream
    for epoch in range(4):
        shapes = [{image.shape for image in batch.images} for batch in stream.epoch(epoch)]
        assert [len(of_one_batch) for of_one_batch in shapes] == [1, 1]


def test_a_thin_image_is_skipped_and_a_box_of_nothing_teaches_nothing(tmp_path: Path):
    """1000 x 1 pixels, of which a detector's longest side of 64 would leave nothing; and a box of a millionth."""
    images = [dict(id=n, file_name=f"{n}.png", width=w, height=h) for n, (w, h) in enumerate([(40, 30), (1000, 1)])]
    boxes = [annotation(1, image_id=0), annotation(2, image_id=0, bbox=[0, 0, 1e-6, 9])]
    file = written(tmp_path, [{**box, "segmentation": []} for box in boxes], images=images)
    (tmp_path / "instances_val.json").write_text(json.dumps(json.loads(file.read_text()) | {"images": images[:1]}))
    for image in images:
        Image.new("RGB", (image["width"], image["height"])).save(tmp_path / "images" / image["file_name"])
    recipe = tiny("voc-retinanet", tmp_path / "run", data=str(tmp_path), batch=2, epochs=4, network=(),
                  model="test_convnext")  # fmt: skip
    assert train_recipe(recipe)[-1]["skipped"] > 0
    assert (
        "1.png cannot be read as an image: 1000 x 1 pixels are thinner than 1 to 64"
        in (tmp_path / "run" / "log.jsonl").read_text()
    )


def test_boxes_alone_train_and_judge_retinanet(tmp_path: Path):
    (tmp_path / "data").mkdir()
    file = written(tmp_path / "data", [annotation(1, segmentation=[]), annotation(2, image_id=9, segmentation=[])])
    (tmp_path / "data" / "instances_val.json").write_text(file.read_text())
    recipe = tiny("voc-retinanet", tmp_path / "run", data=str(tmp_path / "data"), batch=2, limit=None, network=())
    assert train_recipe(recipe)[-1]["val box AP"] >= 0, "-1 would say that there is nothing to find"


def test_what_is_trained_is_not_judged(tmp_path: Path):
    (tmp_path / "data").mkdir()
    written(tmp_path / "data", [annotation(1)]).rename(tmp_path / "data" / "instances.json")
    with pytest.raises(ValueError, match=r"instances\.json would be trained on and evaluated"):
        train_recipe(tiny("voc-retinanet", tmp_path / "run", data=str(tmp_path / "data"), network=()))


def test_a_file_says_of_which_truth_its_detector_is(tmp_path: Path):
    train_recipe(tiny("scenes-retinanet", tmp_path, amodal=False, steps=1))
    assert read_metadata(tmp_path / "last.safetensors").design["amodal"] is False


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (dict(sizes=()), "sizes must be at least one side"),
        (dict(width=0), "width must be a whole number from 1 to 4096, got 0"),
        (dict(frozen=-1), "frozen must be a whole number from 0 to 1000, got -1"),
        (dict(vq=-1.0), r"vq must be a number from 0 to 1e\+09, got -1\.0"),
    ],
)
def test_wrong_settings_are_one_sentence(change: dict[str, object], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        replace(scenes_retinanet(), **change)  # pyright: ignore[reportArgumentType]


def test_a_wrong_argument_of_the_backbone_is_one_sentence(tmp_path: Path):
    with pytest.raises(ValueError, match="network has no argument 'colour'"):
        TASK.learner(tiny("scenes-retinanet", tmp_path, network=("colour=red",)), ["a"])
