"""Another memory in the place of the network's own, and nothing else of the network changed."""

import pytest
import torch

from prism.analysis.oracle import logits_with, no_memory, own_memory, slots_of
from prism.analysis.variants import switched
from tests.model.small import random_images, small_prism


@pytest.fixture
def network():
    return small_prism(max_steps=3).eval()


@torch.inference_mode()
def test_its_own_memory_gives_its_own_answers(network):
    images = random_images(6)
    torch.testing.assert_close(logits_with(network, images, own_memory), network(images))


@torch.inference_mode()
def test_a_memory_that_hands_slots_on_is_one_switched_off(network):
    images = random_images(4)
    off = switched(network, memory="off")(images)
    torch.testing.assert_close(logits_with(network, images, no_memory), off)
    assert not off.allclose(network(images))


@torch.inference_mode()
def test_slots_are_those_of_each_stage_and_step(network):
    images = random_images(2)
    found = slots_of(network, images)
    assert [len(steps) for steps in found] == [3] * 4
    for stage, steps in zip(network.stages, found, strict=True):
        shape = (2, len(stage.initial_slots), 2 * stage.initial_slots.shape[1])
        assert all(slots.grouped.shape == slots.restored.shape == shape for slots in steps)
    ready = iter([slots.restored for steps in found for slots in steps])
    torch.testing.assert_close(logits_with(network, images, lambda *_: next(ready)), network(images))
    network.fixed_steps = (1, 3, 2, 4)
    assert [len(steps) for steps in slots_of(network, images)] == [1, 3, 2, 4]


@torch.inference_mode()
def test_of_its_own_image_a_perfect_memory_is_none(network):
    images = random_images(4)
    perfect = iter([slots.grouped for steps in slots_of(network, images, no_memory) for slots in steps])
    found = logits_with(network, images, lambda *_: next(perfect))
    torch.testing.assert_close(found, switched(network, memory="off")(images))


@torch.inference_mode()
def test_slots_of_another_image_change_the_answer(network):
    images = random_images(4)
    others = iter([slots.restored for steps in slots_of(network, images.roll(1, 0)) for slots in steps])
    assert not logits_with(network, images, lambda *_: next(others)).allclose(network(images))


def test_nothing_of_the_network_is_touched(network):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    loops = [stage.refine for stage in network.stages]
    with pytest.raises(RuntimeError):
        logits_with(network, random_images(2), lambda grouped, _: grouped[..., :3])
    assert [stage.refine for stage in network.stages] == loops
    assert not any(module._forward_hooks for module in network.modules())
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())
