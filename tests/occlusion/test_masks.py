import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prism.occlusion.masks import (
    block_mask,
    instance_mask,
    mask_generator,
    only_one_mask,
    patch_mask,
    scattered_mask,
)

sizes = st.tuples(st.integers(14, 300), st.integers(14, 300))
seeds = st.integers(0, 2**31)


@settings(max_examples=80, deadline=None)
@given(size=sizes, ratio=st.floats(0, 1), seed=seeds)
def test_patch_mask_hides_exactly_its_cells(size: tuple[int, int], ratio: float, seed: int):
    mask = patch_mask(size, ratio, mask_generator(0, seed))
    assert mask.shape == size
    assert mask.dtype == torch.bool
    short = min(size)
    rows, columns = round(14 * size[0] / short), round(14 * size[1] / short)
    top = [round(i * size[0] / rows) for i in range(rows + 1)]
    left = [round(j * size[1] / columns) for j in range(columns + 1)]
    cells = [mask[top[i] : top[i + 1], left[j] : left[j + 1]] for i in range(rows) for j in range(columns)]
    assert all(cell.all() or not cell.any() for cell in cells)
    assert sum(bool(cell.all()) for cell in cells) == round(ratio * rows * columns)


def test_patches_are_16_pixels_at_224():
    mask = patch_mask((224, 224), 0.6, mask_generator(3, 0))
    assert int(mask.sum()) == round(0.6 * 196) * 16 * 16


@settings(max_examples=80, deadline=None)
@given(size=sizes, side=st.floats(0, 224), seed=seeds)
def test_block_mask_is_one_block_of_the_stated_area(size: tuple[int, int], side: float, seed: int):
    mask = block_mask(size, side, mask_generator(1, seed))
    height, width = round(side * size[0] / 224), round(side * size[1] / 224)
    assert mask.shape == size
    assert int(mask.sum()) == height * width
    assert int(mask.any(1).sum()) in (0, height)
    assert int(mask.any(0).sum()) in (0, width)
    assert torch.equal(only_one_mask(size, side, mask_generator(1, seed)), ~mask)


def test_half_a_side_is_half_at_any_resolution():
    assert int(block_mask((64, 64), 112, mask_generator(0, 0)).sum()) == 32 * 32
    assert int((~only_one_mask((96, 96), 56, mask_generator(0, 0))).sum()) == 24 * 24


def test_a_mask_depends_on_index_and_seed_alone():
    masks = {(i, s): patch_mask((64, 64), 0.5, mask_generator(i, s)) for i in range(6) for s in range(3)}
    again = {(i, s): patch_mask((64, 64), 0.5, mask_generator(i, s)) for s in range(3) for i in reversed(range(6))}
    assert all(torch.equal(masks[key], again[key]) for key in masks)
    assert len({mask.numpy().tobytes() for mask in masks.values()}) == len(masks)


def test_positions_of_blocks_are_spread_over_the_image():
    hits = sum(block_mask((32, 32), 112, mask_generator(i, 0)).float() for i in range(400)) / 400
    assert hits[16, 16] > 0.8
    assert 0 < hits[0, 0] < 0.05
    assert abs(hits - hits.flip(0)).max() < 0.15


@settings(max_examples=120, deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    density=st.floats(0.05, 1),
    share=st.floats(0, 1),
    seed=seeds,
)
def test_instance_mask_hides_exactly_the_share(size: tuple[int, int], density: float, share: float, seed: int):
    instance = torch.rand(size, generator=mask_generator(0, seed)) < density
    instance[size[0] // 2, size[1] // 2] = True
    hidden = instance_mask(instance, share, mask_generator(1, seed))
    assert int((hidden & instance).sum()) == round(share * int(instance.sum()))


def test_instance_mask_is_a_block_but_for_its_last_row():
    instance = torch.zeros(60, 80, dtype=torch.bool)
    instance[10:50, 20:70] = True
    for seed in range(20):
        hidden = instance_mask(instance, 0.3, mask_generator(0, seed))
        rows = hidden.sum(1)[hidden.any(1)]
        assert len(rows.unique()) <= 2
        assert (rows < rows.max()).sum() <= 1
        assert hidden[~instance].sum() == 0  # a box-shaped object: the block stays within


@pytest.mark.parametrize(
    ("bad_use", "sentence"),
    [
        (lambda g: patch_mask((64, 64), 1.5, g), "between 0 and 1, got 1.5"),
        (lambda g: block_mask((64, 64), 300, g), "between 0 and 224, the image it is given for; got 300"),
        (lambda g: instance_mask(torch.ones(4, 4, dtype=torch.bool), -0.1, g), "got -0.1"),
        (lambda g: instance_mask(torch.zeros(4, 4, dtype=torch.bool), 0.3, g), "no pixels"),
    ],
)
def test_bad_use_is_named(bad_use, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        bad_use(mask_generator(0, 0))


@settings(max_examples=80, deadline=None)
@given(size=st.tuples(st.integers(32, 90), st.integers(32, 90)), seed=seeds)
def test_scattered_cells_hide_some_and_show_some(size: tuple[int, int], seed: int):
    mask = scattered_mask(size, mask_generator(0, seed))
    assert mask.shape == size
    assert not mask.all()
    others = [scattered_mask(size, mask_generator(place, seed)).float().mean() for place in range(40)]
    assert 0.3 < sum(others) / len(others) < 0.7
    assert mask.equal(scattered_mask(size, mask_generator(0, seed)))


def test_every_other_scattered_mask_hides_whole_patches():
    masks = [scattered_mask((112, 112), mask_generator(place, 0)) for place in range(200)]
    patches = [mask.unfold(0, 8, 8).unfold(1, 8, 8).flatten(2).float().mean(2) for mask in masks]
    whole = sum(bool(((shares == 0) | (shares == 1)).all()) for shares in patches)
    assert 80 <= whole <= 130  # the others cut through patches, but for a few by chance
