"""Twins share weights and differ in switches alone."""

import pytest
import torch

from prism.analysis.variants import switched
from tests.model.small import random_images, small_prism


def test_a_twin_shares_every_weight_and_leaves_the_original_as_it_was():
    model = small_prism().eval()
    twin = switched(model, fixed_steps=2, memory="off", max_steps=3)
    shared = {id(value) for value in (*model.parameters(), *model.buffers())}
    assert {id(value) for value in (*twin.parameters(), *twin.buffers())} == shared
    assert (model.fixed_steps, model.memory, model.max_steps) == (None, "vq", 5)
    model.fixed_steps, model.memory = 2, "off"
    images = random_images(2, 32, 32)
    with torch.inference_mode():
        assert twin(images).equal(model(images))


def test_a_bias_of_the_halting_units_moves_the_steps_one_way():
    model, images = small_prism().eval(), random_images(8)
    before = model.stages[0].halting.fc.bias.clone()  # pyright: ignore

    def steps(bias: float) -> torch.Tensor:
        with torch.inference_mode():
            trace = switched(model, halting_bias=bias).forward_traced(images, slot_maps=False).trace
        return trace.stages[0].steps

    assert (steps(50.0) == 1).all()
    assert (steps(-50.0) == 5).all()
    assert (steps(0.0) <= steps(-1.0)).all()
    assert model.stages[0].halting.fc.bias.equal(before)  # pyright: ignore


def test_an_unknown_switch_is_refused():
    with pytest.raises(ValueError, match="no switch 'colour'"):
        switched(small_prism(), colour="red")
