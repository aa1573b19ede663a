"""Recovery is what a stage's own states say, token by token."""

from itertools import pairwise

import torch

from prism.analysis.recovery import closeness, closeness_by_token, closeness_when_halted
from prism.model.stage import Features
from tests.model.small import random_images, small_prism


def test_a_stage_stopped_after_any_step_is_what_fixed_steps_give():
    model, images = small_prism(max_steps=4).eval(), random_images(3)
    with torch.inference_mode():
        walked = list(model.stages[0].steps(Features(images)))  # pyright: ignore
        assert len(walked) == 4
        for steps, step in enumerate(walked, start=1):
            model.fixed_steps = (steps, 1, 1, 1)
            assert step.features.equal(model.pyramid(images, stages=1).features[0])
        for step, following in pairwise(walked):
            assert following.before is step.refinement.tokens


def test_a_network_may_have_any_number_of_stages():
    model = small_prism(widths=(8, 12, 16), slots=(5, 4, 4), max_steps=2).eval()
    assert [cosines.shape for cosines in closeness(model, random_images(2), random_images(2))] == [(2, 2)] * 3
    more = small_prism(widths=(8, 12, 16, 24, 32), slots=(5, 4, 4, 3, 2)).eval()
    assert len(more.pyramid(random_images(1)).features) == 5
    assert more(random_images(1)).shape == (1, 7)


def test_a_clean_image_is_as_close_to_itself_as_can_be():
    model, images = small_prism(max_steps=3).eval(), random_images(2)
    model.fixed_steps = 3  # so that what is compared with is the state after the last step
    for cosines in closeness(model, images, images):
        assert cosines.shape == (2, 3)
        torch.testing.assert_close(cosines[:, -1], torch.ones(2))
        assert (cosines <= 1 + 1e-6).all()


def test_later_stages_see_what_earlier_ones_made_of_the_occluded_image():
    model, clean, occluded = small_prism(max_steps=2).eval(), random_images(2), random_images(2)
    model.fixed_steps = 2
    expected = closeness_when_halted(model, clean, occluded)
    for cosines, whole in zip(closeness_by_token(model, clean, occluded), expected, strict=True):
        torch.testing.assert_close(cosines[:, -1], whole)


def test_nothing_of_the_network_is_touched():
    model, images = small_prism().eval(), random_images(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    closeness(model, images, images.roll(1, 0))
    assert (model.fixed_steps, model.max_steps) == (None, 5)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
