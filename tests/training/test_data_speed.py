"""Whether data keeps up: a row a repeat, and their medians."""

from pathlib import Path

import torch

from prism.training.data_speed import measure, trainer
from tests.model.small import random_images, small_prism
from tests.training.small import small_recipe


def test_shares_are_of_the_speed_without_reading(tmp_path: Path):
    *rows, median = measure(small_recipe(tmp_path), steps=2, repeats=3, progress=lambda _: None)
    assert [row["repeat"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert abs(row["share"] - 100 * row["fed"] / row["held"]) < 1e-6
    assert median["share"] == sorted(row["share"] for row in rows)[1]


def test_a_timed_step_trains_a_copy_at_the_given_steps():
    """Within inference mode, where whatever is timed runs."""
    model, asked, heads = small_prism(), [], []
    for stage in model.stages:
        stage.halting.register_forward_hook(lambda *_: asked.append(1))  # pyright: ignore[reportAttributeAccessIssue]
    model.head.fc.register_forward_hook(lambda fc, *_: heads.append(fc.weight.detach().clone()))  # pyright: ignore
    run = trainer(model, (2.0, 3.0, 1.0, 2.0))
    with torch.inference_mode():
        run(random_images(2, 32, 32))
        run(random_images(2, 32, 32))
    assert len(asked) == 2 * (2 + 3 + 1 + 2)
    assert not heads[0].equal(heads[1])
    assert heads[0].equal(model.head.fc.weight)
