"""PRISM's loop as an operator of a graph takes the same steps to the same answer as the one in Python."""

from typing import Any

import pytest
import torch

from prism.export.exportable import Exportable, reference
from tests.export.small import restless, varied


@pytest.mark.parametrize("arguments", [{}, {"evidence": False}, {"preset": "paper"}, {"memory": "off"}])
@pytest.mark.parametrize("size", [(32, 32), (45, 70)])
def test_same_steps_and_logits(arguments: dict[str, Any], size: tuple[int, int]):
    network = restless(**arguments)
    images = varied(5, *size)
    with torch.no_grad():
        logits, steps = Exportable(network)(images)
    wanted, taken = reference(network, images, features=False)
    assert len(taken.unique()) > 1
    assert steps.equal(taken)
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=0)


def test_fixed_steps_and_maps():
    network = restless(fixed_steps=(1, 3))
    *maps, steps = Exportable(network, features=True)(torch.randn(2, 3, 40, 64))
    assert [tuple(level.shape) for level in maps] == [(2, 16, 10, 16), (2, 32, 5, 8)]
    assert steps.tolist() == [[1, 3], [1, 3]]


def test_the_network_itself_stays_as_it_was():
    network = restless()
    loop = network.stages[0].refine
    Exportable(network)
    assert network.stages[0].refine is loop
