"""The loop of an exported file takes the steps it is told to, so that engines can be timed at the same means."""

import pytest
import torch

from prism.export.planned import runner
from tests.model.small import pictures, small_prism

MEANS = (2.5, 3.2, 3.7, 1.0)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_planned_steps_reach_their_means_in_a_file(engine: str):
    run = runner(engine, 64, threads=1)(small_prism().eval(), MEANS)
    taken = torch.cat([run(pictures(4, 64, 64))["steps"] for _ in range(25)])  # pyright: ignore[reportIndexIssue]
    assert taken.float().mean(0).tolist() == pytest.approx(MEANS, abs=1e-6)
    assert (taken.float() - torch.tensor(MEANS)).abs().max() < 1  # floor or ceiling


def test_an_unknown_engine_is_named():
    with pytest.raises(ValueError, match="no engine is called 'banana'; there are eager"):
        runner("banana", 64, 1)
