"""Parameters and MACs are the published ones."""

import pytest
import timm
import torch

from prism.baselines import biformer, bixt, debiformer, paca
from prism.metrics.complexity import parameters, parts

OFFICIAL = {  # parameters and GMACs of the official code at 224 px
    "biformer_tiny": (13_142_760, 2.216),
    "bixt_tiny_patch16": (15_121_192, 1.672),
    "pacavit_tiny": (12_200_680, 3.219),
    "debiformer_tiny": (21_495_598, 2.636),
    "bixt_tiny_patch16_s8": (15_121_192, 4.69),
}
PUBLISHED = {"biformer_small": 25.5, "biformer_base": 57, "bixt_tiny_patch16_s4": 15.12, "bixt_tiny_patch16_d13": 16.38}


@pytest.mark.parametrize("name", OFFICIAL)
def test_cost_is_that_of_the_official_code(name: str):
    count, gmacs = OFFICIAL[name]
    rows = parts(timm.create_model(name), (224, 224))
    assert rows[-1]["parameters"] == count
    assert rows[-1]["MMAC"] / 1e3 == pytest.approx(gmacs, rel=0.01)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str):
    with torch.device("meta"):
        assert parameters(timm.create_model(name)) / 1e6 == pytest.approx(PUBLISHED[name], rel=0.005)


def test_nano_variants_are_sized_against_prism_nano():
    for name in ("biformer_nano", "bixt_nano", "pacavit_nano", "debiformer_nano"):
        assert 2.5e6 < parameters(timm.create_model(name)) < 3.5e6
        assert parameters(timm.create_model(name)) > parameters(timm.create_model("prism_nano"))


def test_every_variant_is_covered():
    names = {name for family in (biformer, bixt, paca, debiformer) for name in family.VARIANTS}
    assert {name for name in names if not name.endswith("nano")} == {*OFFICIAL, *PUBLISHED}
