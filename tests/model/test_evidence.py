"""What could not be seen has no say: properties of evidence, and of a network that goes by it."""

import pytest
import torch

from prism.model.evidence import contrast_evidence, filled, merged, weighted
from tests.model.small import random_images, small_prism


@pytest.mark.parametrize("colour", [0.0, 0.5, -2.1, 1e3])
def test_a_surface_of_one_colour_is_a_hole_up_to_its_edge_whatever_the_colour(colour: float):
    images = random_images(2, 32, 32)
    images[:, :, 5:18, 3:9] = colour
    hole = torch.zeros(32, 32, dtype=torch.bool)
    hole[5:18, 3:9] = True
    evidence = contrast_evidence(images)
    assert (evidence[:, 0, hole] == 0).all()
    assert (evidence[:, 0, ~hole] > 0.99).all()


def test_a_line_is_no_hole():
    images = random_images(1, 32, 32)
    images[:, :, 10:12] = 1
    assert (contrast_evidence(images) > 0.99).all()


def test_something_was_seen_of_a_cell_if_any_of_its_parts_was():
    evidence = torch.zeros(1, 1, 3, 4)
    evidence[0, 0, 0, 1] = 1
    assert merged(evidence, 2).tolist() == [[[[1, 0], [0, 0]]]]


def test_holes_take_the_mean_of_what_was_seen_around_them():
    features = torch.tensor([[2.0, 4.0], [7.0, 9.0]])[None, None]
    evidence = torch.tensor([[1.0, 1.0], [0.0, 0.0]])[None, None]
    torch.testing.assert_close(filled(features, evidence, 2)[0, 0, 1], torch.tensor([3.0, 3.0]), rtol=0, atol=0.01)
    torch.testing.assert_close(filled(features, evidence, 2)[0, 0, 0], features[0, 0, 0])


def test_where_all_was_seen_nothing_is_filled():
    features = torch.randn(2, 5, 6, 4)
    torch.testing.assert_close(filled(features, torch.ones(2, 1, 6, 4), 2), features)


def test_the_mean_of_a_weighted_map_is_that_of_what_was_seen():
    features, evidence = torch.randn(2, 5, 4, 4), torch.zeros(2, 1, 4, 4)
    evidence[:, :, :2] = 1
    found = weighted(features, evidence).mean((2, 3))
    torch.testing.assert_close(found, features[:, :, :2].mean((2, 3)), rtol=0, atol=1e-3)
    torch.testing.assert_close(weighted(features, 0 * evidence), features)  # nothing at all: as it is


@torch.inference_mode()
@pytest.mark.parametrize("hole", [(slice(32, 64), slice(16, 48)), (slice(31, 64), slice(17, 46))])
def test_the_colour_of_a_hole_changes_nothing_even_if_it_cuts_through_patches(hole: tuple[slice, slice]):
    model = small_prism().eval()
    images = random_images(3, 64, 64)
    answers = []
    for colour in (0.0, 1.7):
        images[:, :, *hole] = colour
        answers.append(model(images))
    torch.testing.assert_close(*answers, rtol=0, atol=1e-3)
    other = small_prism(evidence=False).eval()  # the control: without evidence it does
    far = []
    for colour in (0.0, 1.7):
        images[:, :, *hole] = colour
        far.append(other(images))
    assert (far[0] - far[1]).abs().max() > 0.05


@torch.inference_mode()
def test_a_blank_image_has_an_answer():
    assert small_prism().eval()(torch.zeros(1, 3, 64, 64)).isfinite().all()


@torch.inference_mode()
def test_evidence_comes_with_every_map():
    found = small_prism().eval().pyramid(random_images(2, 48, 80))
    assert found.evidence is not None
    for maps, evidence in zip(found.features, found.evidence, strict=True):
        assert evidence.shape == (2, 1, *maps.shape[2:])
    assert small_prism(evidence=False).eval().pyramid(random_images(1)).evidence is None
    assert small_prism(preset="paper").eval().pyramid(random_images(1)).evidence is None
