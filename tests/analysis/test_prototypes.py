"""Regions of prototypes lie where a slot that recalled them won."""

import pytest
import torch

from prism.analysis.prototypes import around_peak, atlas
from tests.model.small import random_images, small_prism


def test_around_the_peak_is_connected_and_at_least_half_as_strong():
    maps = torch.tensor([[[0.9, 0.5, 0.0, 0.8], [0.0, 0.0, 0.0, 0.8], [0.0, 0.0, 0.0, 0.0]]])
    assert around_peak(maps).int().tolist() == [[[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]]
    snake = torch.tensor([[[1.0, 1, 1], [0, 0, 1], [1, 0, 1], [0, 1, 0]]])  # diagonals touch
    assert around_peak(snake).equal(snake.bool())


def test_regions_are_of_images_whose_slots_recalled_the_code():
    model, images = small_prism().eval(), random_images(5, 64, 96)
    with torch.inference_mode():
        trace = model.forward_traced(images).trace
    found = atlas(model, images, per_code=2)
    assert len(found) == 4
    for stage, prototypes in zip(trace.stages, found, strict=True):
        assert stage.codes is not None
        assert stage.slot_maps is not None
        held = stage.slot_maps.amax((-2, -1)) > 1 / stage.slot_maps.shape[2]
        assert sum(prototype.uses for prototype in prototypes.values()) == int(held.sum())
        for code, (uses, regions) in prototypes.items():
            assert uses == int((held & (stage.codes == code)).sum())
            assert 0 < len(regions) <= 2
            assert len({region.image for region in regions}) == len(regions)
            assert [r.strength for r in regions] == sorted((r.strength for r in regions), reverse=True)
            for image, (left, top, right, bottom), strength in regions:
                of_image = stage.slot_maps[image][stage.codes[image] == code]
                assert strength == pytest.approx(float(of_image.max()))
                assert 0 <= left < right <= 96
                assert 0 <= top < bottom <= 64


def test_batches_do_not_change_the_atlas():
    model, images = small_prism(max_steps=2).eval(), random_images(20, 32, 32)
    whole, parts = atlas(model, images, per_code=20), atlas(model, images[16:], per_code=20)
    late = {(code, region.box) for code, p in whole[0].items() for region in p.regions if region.image >= 16}
    assert late == {(code, region.box) for code, p in parts[0].items() for region in p.regions}


def test_without_a_quantiser_there_is_no_atlas():
    with pytest.raises(ValueError, match="its memory is 'off'"):
        atlas(small_prism(memory="off").eval(), random_images(1), 1)
