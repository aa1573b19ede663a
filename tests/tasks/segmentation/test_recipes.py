from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassJaccardIndex

from prism.data import sources
from prism.data.label_maps import VOID, LabelledImages, open_segmentation
from prism.tasks.registry import recipes
from prism.tasks.segmentation import recipes as segmentation
from prism.tasks.segmentation import task
from prism.tasks.segmentation.network import load_segmenter
from prism.tasks.segmentation.task import TASK
from prism.training.log import read_log
from prism.training.run import rehearse
from prism.training.run import train_recipe as run

FOUR = ["a", "b", "c", "d"]
SMALL = ("widths=(16,24,32,48)", "slots=(5,4,4,3)", "codes=16", "code_decay=0.9")


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> segmentation.Segmentation:
    """The recipe for scenes, much smaller."""
    monkeypatch.setitem(sources.SCENES, "val", 12)
    recipe = segmentation.scenes_semfpn()
    return replace(recipe, out=tmp_path / "run", network=SMALL, width=32, size=32, length=64, epochs=3, batch=8,
                   workers=0, log_every=1, device="cpu", warmup=0.0)  # fmt: skip


def test_the_papers_recipe():
    recipe = segmentation.ade20k_semfpn()
    assert (recipe.size, recipe.batch, recipe.steps, recipe.width) == (512, 16, 40_000, 256)
    assert (recipe.lr, recipe.weight_decay, recipe.schedule) == (1e-4, 1e-4, "poly")
    assert recipe.rate(20_000, 40_000, 1263) == pytest.approx(1e-4 * 0.5**0.9)
    assert (recipe.model, recipe.classes, recipe.scales) == ("prism_tiny", 150, (0.5, 2.0))
    assert {"ade20k-semfpn", "voc-semfpn", "scenes-semfpn"} <= recipes().keys()


def test_training_lowers_the_loss_and_its_miou_is_torchmetrics(scenes: segmentation.Segmentation):
    rows = run(scenes)
    losses = [row["segmentation"] for row in read_log(scenes.out / "log.jsonl") if row["kind"] == "train"]
    assert len(losses) == 24
    assert np.mean(losses[-6:]) < 0.8 * np.mean(losses[:3])
    assert rows[-1]["val mIoU"] > 0
    assert {"val pixel accuracy", "val boundary IoU", "steps 1", "perplexity 1"} <= rows[-1].keys()
    assert (scenes.out / "report.html").exists()
    found = load_segmenter(scenes.out / "last.safetensors")
    assert found.network.classes[0] == "ground"
    theirs = MulticlassJaccardIndex(11, average="macro", ignore_index=VOID)
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (found.network.mean, found.network.std))
    with torch.inference_mode():
        for images, labels in DataLoader(LabelledImages(open_segmentation("scenes", "val", 32)), 5):
            theirs.update(found((images - mean) / std).argmax(1), labels.long())
    assert rows[-1]["val mIoU"] == pytest.approx(float(theirs.compute()), abs=1e-6)


def folder(root: Path) -> Path:
    for split in ("train", "val"):
        for kind in ("images", "masks"):
            (root / kind / split).mkdir(parents=True)
        for number in range(4):
            random = np.random.default_rng(number)
            size = (33 + number, 47)
            Image.fromarray(random.integers(0, 255, (*size, 3), np.uint8)).save(
                root / "images" / split / f"{number}.png"
            )
            Image.fromarray(random.integers(0, 3, size, np.uint8)).save(root / "masks" / split / f"{number}.png")
    return root


def test_any_folder_of_masks_and_a_backbone_that_has_weights(scenes: segmentation.Segmentation, tmp_path: Path):
    recipe = replace(scenes, data=str(folder(tmp_path / "data")), classes=3, size=40, fit=(48, 48), epochs=1, batch=4,
                     scales=(0.5, 2.0), distortion=True, model="resnet10t", network=(), own_losses=False)  # fmt: skip
    rows = run(recipe)
    assert 0 < rows[-1]["val mIoU"] < 1
    assert load_segmenter(recipe.out / "best.safetensors").fit == (48, 48)


def test_masks_without_a_label_are_one_sentence(scenes: segmentation.Segmentation, tmp_path: Path):
    data = folder(tmp_path / "data")
    for path in data.glob("masks/val/*"):
        Image.fromarray(np.full(np.asarray(Image.open(path)).shape, VOID, np.uint8)).save(path)
    recipe = replace(scenes, data=str(data), classes=3, size=32, epochs=1, batch=4, model="test_convnext", network=())
    with pytest.raises(ValueError, match="no pixel of these images is labelled"):
        run(recipe)
    assert not (recipe.out / "best.safetensors").exists()


def test_an_interrupted_run_goes_on_to_the_same_weights(scenes: segmentation.Segmentation):
    whole = replace(scenes, epochs=1, length=16)
    run(whole)
    parts = replace(whole, out=scenes.out.with_name("parts"), save_every=1)
    run(parts)
    (parts.out / "checkpoints" / "step-00000002.pt").unlink()  # as if it had been killed after the first step
    run(parts)
    left, right = (load_segmenter(r.out / "last.safetensors").state_dict() for r in (whole, parts))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_backbone_starts_from_a_classifier(scenes: segmentation.Segmentation, tmp_path: Path):
    classifier = timm.create_model("resnet10t", num_classes=5)
    save_file(classifier.state_dict(), tmp_path / "classifier.safetensors")
    recipe = replace(scenes, model="resnet10t", network=(), weights=tmp_path / "classifier.safetensors")
    learner = TASK.learner(recipe, FOUR)
    body = learner.network.backbone.body.state_dict()
    assert torch.equal(body["layer4.0.conv1.weight"], classifier.state_dict()["layer4.0.conv1.weight"])


@pytest.mark.parametrize("name", ["scenes-semfpn", "voc-semfpn"])
def test_rehearsal_needs_no_data(name: str):
    recipe = replace(recipes()[name](), size=64, network=SMALL)  # pyright: ignore
    said = rehearse(recipe)
    assert "one step on noise: segmentation" in said
    assert said.endswith("GMAC at 64 x 64")


def test_a_dry_run_of_the_papers_segmenter_names_its_costs(monkeypatch: pytest.MonkeyPatch):
    recipe = segmentation.ade20k_semfpn()
    monkeypatch.setattr(task, "costs", lambda network, size: (14_400_000, 30.8e9 if size == (512, 512) else 0))
    expected = "14.4 M parameters (paper: 15.5 M), 30.8 GMAC (paper: 35.6 G) at 512 x 512"
    assert TASK.cost(recipe, recipe.classes or 0) == expected


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (dict(scales=(2.0, 0.5)), r"scales must be the smallest and the largest"),
        (dict(fit=(0, 3)), "fit must be a whole number from 1 to 4096, got 0"),
        (dict(size=0), "size must be a whole number from 1 to 4096, got 0"),
        (dict(dropout=-0.1), r"dropout must be a number from 0 to 1, got -0\.1"),
        (dict(splits=()), "name at least one split"),
    ],
)
def test_bad_settings_are_named(changes: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        replace(segmentation.scenes_semfpn(), **changes)


def test_bad_arguments_of_a_model_are_named(scenes: segmentation.Segmentation):
    with pytest.raises(ValueError, match="network has no argument 'depth'"):
        TASK.learner(replace(scenes, network=("depth=3",)), FOUR)


def test_the_seed_decides_the_first_weights(scenes: segmentation.Segmentation):
    one, same, other = (TASK.learner(replace(scenes, seed=seed), FOUR).state_dict() for seed in (1, 1, 2))
    key = "network.classifier.1.weight"
    assert torch.equal(one[key], same[key])
    assert not torch.equal(one[key], other[key])
