import pytest
import torch

from prism.occlusion.fills import FILLS, fill
from prism.occlusion.masks import mask_generator

MEAN = torch.tensor([0.485, 0.456, 0.406])


@pytest.mark.parametrize("kind", FILLS)
def test_only_hidden_pixels_change(kind):
    image, other = torch.rand(3, 20, 30), torch.rand(3, 10, 10)
    mask = torch.zeros(20, 30, dtype=torch.bool)
    mask[5:12, 8:25] = True
    filled = fill(image, mask, kind, MEAN, other, mask_generator(0, 0))
    assert torch.equal(filled[:, ~mask], image[:, ~mask])
    assert not torch.equal(filled[:, mask], image[:, mask])
    assert filled.min() >= 0
    assert filled.max() <= 1
    assert torch.equal(filled, fill(image, mask, kind, MEAN, other, mask_generator(0, 0)))


def test_the_headline_fill_is_zero_after_normalisation():
    image, everything = torch.rand(3, 8, 8), torch.ones(8, 8, dtype=torch.bool)
    filled = fill(image, everything, "mean", MEAN, image, mask_generator(0, 0))
    assert (filled - MEAN.view(3, 1, 1)).abs().max() == 0


def test_blur_keeps_the_colour_and_loses_the_shape():
    image = torch.zeros(3, 64, 64)
    image[0, :, ::2] = 1  # red stripes
    everything = torch.ones(64, 64, dtype=torch.bool)
    filled = fill(image, everything, "blur", MEAN, image, mask_generator(0, 0))
    assert filled[0].std() < 0.05
    assert filled[0].mean().item() == pytest.approx(0.5, abs=0.05)


def test_an_unknown_fill_is_named():
    image, everything = torch.rand(3, 4, 4), torch.ones(4, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="got 'plaid'"):
        fill(image, everything, "plaid", MEAN, image, mask_generator(0, 0))  # type: ignore
