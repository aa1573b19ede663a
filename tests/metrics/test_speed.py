from collections.abc import Sequence

import pytest
import timm
import torch
from torch import nn

from prism.metrics.speed import Runner, force_steps, make_cases, measure
from tests.model.small import random_images, small_prism


@torch.inference_mode()
@pytest.mark.parametrize("batch", [1, 16])
def test_forced_steps_reach_their_means_through_the_real_loop(batch: int):
    model = small_prism().eval()
    means = (2.5, 3.2, 3.7, 1.0)
    force_steps(model, means)
    taken = torch.zeros(4)
    for _ in range(160 // batch):
        stages = model.forward_traced(random_images(batch, 32, 32)).trace.stages
        for index, (stage, mean) in enumerate(zip(stages, means, strict=True)):
            assert set(stage.steps.tolist()) <= {int(mean), int(mean) + 1}
            taken[index] += stage.steps.sum()
    assert (taken / 160).tolist() == pytest.approx(means, abs=0.01)


def test_steps_out_of_range_are_named():
    with pytest.raises(ValueError, match=r"between 1 and 5, got 0.5"):
        force_steps(small_prism(), (0.5, 1, 1, 1))


def test_rows():
    models = {"ours": small_prism().eval(), "theirs": timm.create_model("resnet10t")}
    rows = measure(make_cases(models, {"ours": (2.0,) * 4}, [32, 64], [1, 2]), repeats=2)
    assert [(row["model"], row["px"], row["batch"]) for row in rows] == [
        (model, px, batch) for model in models for px in (32, 64) for batch in (1, 2)
    ]
    for row in rows[:4]:
        assert row["ratio to ours"] == 1
    assert all(row["images/s"] > 0 and 0 < row["share of matmul peak"] < 1 for row in rows)


def test_what_cannot_run_has_a_row_that_says_why():
    """One model cannot be prepared, the other fails at the larger images."""

    def engine(model: nn.Module, means: Sequence[float] | None) -> Runner:
        if model is strange:
            raise ValueError("no such operator")
        return lambda images: model(images).view(1, 32, 32)

    strange = nn.Conv2d(3, 1, 1)
    models = {"strange": strange, "narrow": nn.Conv2d(3, 1, 1)}
    rows = measure(make_cases(models, {}, [32, 64], [1], "engine", engine), repeats=2)
    reasons = [row.get("cannot run", "") for row in rows]
    assert reasons[:3] == ["no such operator", "no such operator", ""]
    assert "is invalid for input of size 4096" in reasons[3]
    assert rows[2]["ratio to narrow"] == 1
    with pytest.raises(ValueError, match="engine cannot run strange: no such operator"):
        measure(make_cases({"strange": strange}, {}, [32], [1], "engine", engine), repeats=2)
