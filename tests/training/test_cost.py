"""What a dry run says of GPUs follows from the network and the recipe."""

from dataclasses import replace
from pathlib import Path

import pytest

from prism.tasks.classification.recipes import imagenet
from prism.tasks.classification.task import TASK
from prism.training import checkpoint, cost, loop
from prism.training.run import rehearse
from tests.training.small import small_recipe


def test_hours_follow_operations_and_devices():
    one = cost.Cost(macs=1e9, images=1_000_000, epochs=10, devices=1)
    assert one.hours(100e12) == pytest.approx(6 * 1e9 * 1e7 / (100e12 * cost.UTILISATION) / 3600)
    assert one._replace(devices=8).hours(100e12) == pytest.approx(one.hours(100e12) / 8)
    assert one.speed(100e12) * 3600 * one.hours(100e12) == pytest.approx(1e7)


def test_a_dry_run_reckons_with_devices(tmp_path: Path):
    said = rehearse(small_recipe(tmp_path, devices=4, length=1000, epochs=3))
    assert "x 1,000 images x 3 epochs = " in said
    assert "on 4 GPUs at 10% of their peak" in said
    unknown = replace(imagenet(), data="elsewhere")
    assert not cost.sentences(unknown, TASK.learner(small_recipe(tmp_path), ["a", "b"]).network)


@pytest.mark.parametrize("average", [None, 0.5])
def test_a_checkpoint_has_the_size_that_was_said(tmp_path: Path, average: float | None):
    recipe = small_recipe(tmp_path, steps=1, average=average, network=("widths=(16,32,64,96)", "codes=256"))
    accelerator = loop.start(recipe)
    run = loop._Run(TASK.job(recipe, accelerator), recipe, accelerator)
    next(run.rest_of_epoch(loop.Log(None, 0, 1, "run")))
    run.save()
    found = checkpoint.saved(tmp_path / "checkpoints")[0].stat().st_size / 1e6
    said = cost.sentences(replace(recipe, length=48), run.job.learner.network)[-1]
    assert float(said.split(" MB")[0].rpartition(" ")[2]) == pytest.approx(found, rel=0.2, abs=1)
