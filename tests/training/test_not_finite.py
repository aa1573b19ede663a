"""An answer that is not finite stops an evaluation, names its image, and is never the best."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from prism.cli import main
from prism.data.label_maps import open_segmentation
from prism.data.objects import SceneImages
from prism.tasks.classification.task import TASK
from prism.tasks.detection.evaluate import detect
from prism.tasks.detection.network import Design, build_network
from prism.tasks.segmentation.evaluate import in_training
from prism.tasks.segmentation.network import SemanticFPN
from prism.training import loop
from tests.training.small import NETWORK, small_recipe


class Poisoned(nn.Module):
    """Answers to all but the third image it is shown are those of another network."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, self.seen = network, 0

    def forward(self, images: Tensor) -> Tensor:
        places = torch.arange(self.seen, self.seen + len(images))
        self.seen += len(images)
        answer = self.network(images)
        return torch.where((places == 2).view(-1, *[1] * (answer.ndim - 1)), math.nan, answer)


def test_a_diverged_classifier_is_not_perfect(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = "train scenes --steps 1 --size 32 --batch 4 --length 8 --limit 4 --workers 0 --lr 1e30 --model prism_nano"
    with pytest.raises(SystemExit, match="the network gave a score that is not finite for scene"):
        main([*words.split(), "--network", *NETWORK, "--out", str(tmp_path)])
    assert not list(tmp_path.glob("*.safetensors"))


def test_the_image_of_a_classifier(tmp_path: Path):
    recipe = small_recipe(tmp_path, model="resnet18", network=(), limit=5, batch=2, steps=1)
    accelerator = loop.start(recipe)
    job = TASK.job(recipe, accelerator)
    with pytest.raises(ValueError, match="the network gave a score that is not finite for scene 507 of val"):
        job.evaluate(Poisoned(job.learner.network).eval(), accelerator)


def test_a_figure_that_is_not_finite_is_not_the_best(tmp_path: Path):
    recipe = small_recipe(tmp_path, steps=1)
    accelerator = loop.start(recipe)
    job = replace(TASK.job(recipe, accelerator), evaluate=lambda *_: {"val top-1": math.nan})
    with pytest.raises(ValueError, match="the evaluation after step 1 gave no finite val top-1"):
        loop.train(job, recipe, accelerator)
    assert not (tmp_path / "best.safetensors").exists()


def test_the_image_of_a_segmenter():
    samples = open_segmentation("scenes", "val", 32, 5)
    network = SemanticFPN("prism_nano", samples.classes, 8, widths=(8, 12, 16, 24), slots=(5, 4, 4, 3), codes=16)
    network.classifier = Poisoned(network.classifier)  # pyright: ignore
    with pytest.raises(ValueError, match="prism_nano gave a score that is not finite for scene 2 of val"):
        in_training(network.eval(), samples, None, Accelerator(cpu=True), batch=2, workers=0)


@pytest.mark.parametrize(("head", "part"), [("retinanet", "head"), ("maskrcnn", "roi_heads.box_predictor.cls_score")])
def test_the_image_of_a_detector(head: str, part: str):
    design = Design("prism_nano", head, 8, 16, (32,), 32, 20, 16)  # pyright: ignore[reportArgumentType]
    network = build_network(design, 10, widths=(8, 12, 16, 24), slots=(5, 4, 4, 3), codes=16).eval()
    images = SceneImages("val", 3, 32)
    with torch.no_grad():
        next(network.detector.get_submodule(part).parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match="the detector gave a score that is not finite for scene 0 of val"):
        detect(network, images, Accelerator(cpu=True), batch=2, workers=0)
