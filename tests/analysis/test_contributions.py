"""Contributions are what they are called."""

import math

import pytest
import torch

from prism.analysis.contributions import contributions, explained_share, relative_size, slot_entropy
from prism.model.stage import Features
from tests.model.small import random_images, small_prism


def test_entropy_is_0_for_decided_and_1_for_undecided_slots():
    one_takes_all = torch.eye(4)[None, :, [0, 1, 2, 3, 0]]
    assert slot_entropy(one_takes_all) == pytest.approx(0, abs=1e-6)
    assert slot_entropy(torch.full((2, 4, 5), 0.25)) == pytest.approx(1)


def test_explained_share_is_1_for_a_perfect_memory_and_0_for_the_mean():
    slots = torch.randn(3, 4, 8)
    assert explained_share(slots, slots) == pytest.approx(1)
    assert explained_share(slots, slots.mean((0, 1)).expand_as(slots)) == pytest.approx(0, abs=1e-6)


def test_sizes_are_those_of_the_parts():
    assert relative_size(torch.full((2, 3), 3.0), torch.full((5,), -6.0)) == pytest.approx(0.5)


@torch.inference_mode()
def test_what_does_nothing_measures_as_nothing():
    network = small_prism().eval()
    stage = network.stages[0]
    stage.step.token_scale.gain.zero_()  # pyright: ignore
    stage.step.token_ffn.contract.weight.zero_()  # pyright: ignore
    stage.step.token_ffn.contract.bias.zero_()  # pyright: ignore
    for figures in contributions(stage, Features(random_images(2))):  # pyright: ignore
        assert figures["returned"] == pytest.approx(0, abs=1e-6)
        assert figures["mixed"] == pytest.approx(0, abs=1e-6)
    network.memory = "off"
    assert all(
        math.isnan(figures["explained"])  # what is not asked restores nothing
        for figures in contributions(network.stages[1], Features(random_images(2, 32, 32)[:, :1].expand(-1, 8, -1, -1)))
    )  # pyright: ignore
