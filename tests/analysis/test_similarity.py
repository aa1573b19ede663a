"""Similarity compares maps of one stage, token by token or pooled."""

import timm
import torch

from prism.analysis.pairs import Pairs, hidden_tokens
from prism.analysis.similarity import cosines, stage_maps
from prism.occlusion.benchmark import Occluded, Setting
from tests.model.small import random_images, small_prism


def test_cosines_do_not_see_scale_and_pooling_does_not_see_places():
    maps = torch.randn(2, 5, 3, 4)
    for found in cosines(maps, 7 * maps).values():
        torch.testing.assert_close(found, torch.ones(2))
    moved = cosines(maps, maps.roll(1, -1))
    torch.testing.assert_close(moved["pooled"], torch.ones(2))
    assert (moved["tokens"] < 0.9).all()


def test_four_maps_of_any_model():
    images = random_images(1, 64, 64)
    for model in (small_prism(), timm.create_model("pvt_v2_b0"), timm.create_model("resnet10t")):
        sides = [64 // level.shape[-1] for level in stage_maps(model.eval(), images)]
        assert sides == [4, 8, 16, 32]
    vit = timm.create_model("vit_tiny_patch16_224", img_size=64).eval()
    assert [level.shape[-2:] for level in stage_maps(vit, images)] == [(4, 4)] * 4


class Two:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(3, 28, 28, generator=torch.Generator().manual_seed(index)), index


def test_pairs_are_the_benchmarks_pixels_beside_what_was_there():
    setting = Setting("PatchMask", 0.6)
    view = Occluded(Two(), setting, "mean", 0, (0.485, 0.456, 0.406))
    for index in range(2):
        clean, occluded, hidden = Pairs(Two(), setting)[index]
        assert clean.equal(Two()[index][0])
        assert occluded.equal(view[index][0])
        assert occluded[:, ~hidden].equal(clean[:, ~hidden])


def test_a_token_is_hidden_if_most_of_it_is():
    hidden = torch.zeros(1, 8, 8, dtype=torch.bool)
    hidden[0, :4, :4] = True  # all of the first token
    hidden[0, 4:, :2] = True  # half of the third
    assert hidden_tokens(hidden, (2, 2)).tolist() == [[[True, False], [False, False]]]
