"""What is drawn is what was found, inside one page, and no name can break out of it."""

import re

import numpy as np
import pytest
import torch

from prism.analysis.pairs import Pair, hide
from prism.app import drawing, samples
from prism.app.explanation import Answer, Explanation, explain
from prism.app.intake import as_pixels, read_url
from prism.app.networks import Players, open_players
from prism.app.samples import Examples
from prism.data.scenes import SHAPES
from prism.occlusion.benchmark import Setting
from prism.occlusion.masks import mask_generator
from tests.app.small import SIZE, save_baseline, save_prism

COLOUR = torch.tensor([0.2, 0.4, 0.6])


@pytest.fixture(scope="module")
def players(tmp_path_factory: pytest.TempPathFactory) -> Players:
    place = tmp_path_factory.mktemp("weights")
    return open_players(save_prism(place / "a.safetensors"), save_baseline(place / "b.safetensors"))


@pytest.fixture(scope="module")
def examples(players: Players) -> Examples:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "EXAMPLES", 8)
        found = samples.examples(players, None)
    assert found is not None
    return found


def explained(players: Players, strength: float = 112) -> Explanation:
    image = as_pixels(read_url(samples.samples(players, None)[0].image), SIZE)
    return explain(players, hide(image, Setting("BlockMask", strength), mask_generator(0, 0), COLOUR))


def test_everything_is_there_and_inside_the_page(players: Players, examples: Examples):
    found = explained(players)
    page = drawing.results(found, players, examples, SHAPES[0])
    assert page.count('<div class="reading">') == 4
    assert page.count('<div class="answer">') == 4 + 2
    assert page.count("</li>") == 6 * 3
    assert page.count('<div class="stage">') == 4
    assert page.count("<svg") == sum(len(s.whole) + len(s.hidden) for s in found.stages)
    assert "25% of the image is hidden" in page
    assert "prototype" in page
    assert "test_resnet, always" in page
    assert all(source.startswith("data:image/") for source in re.findall(r'(?:src="|url\()([^")]*)', page))
    assert "http" not in re.sub(r"data:[^\")]*", "", page)


def test_the_right_class_is_marked_and_an_unlikely_one_is_no_answer(players: Players):
    found = explained(players)
    first, *others = found.readings[0].answers[0].choices
    sure = found.readings[0].answers[0]._replace(choices=[first._replace(probability=0.9), *others])
    page = drawing.results(_answered(found, sure), players, None, first.name)
    assert f'<b class="right">{first.name}</b>' in page
    assert '<li class=right><span class="bar" style="width:90.0%">' in page
    assert f'<b class="wrong">{first.name}</b>' in drawing.results(_answered(found, sure), players, None, "another")
    assert f'<b class="">{first.name}</b>' in drawing.results(_answered(found, sure), players, None, "")
    unsure = sure._replace(choices=[first._replace(probability=0.4), *others])
    assert '<b class="">not sure</b>' in drawing.results(_answered(found, unsure), players, None, "")
    photographs = players._replace(classes=[f"n{number}" for number in range(10)])
    assert '<b class="">none of the ten</b>' in drawing.results(_answered(found, unsure), photographs, None, "")


def _answered(found: Explanation, answer: Answer) -> Explanation:
    return found._replace(readings=[reading._replace(answers=[answer]) for reading in found.readings])


def test_names_are_text(players: Players):
    evil = "<img src=x onerror=alert(1)>"
    strange = players._replace(titles=[evil] * len(SHAPES))
    page = drawing.results(explained(strange), strange, None, evil)
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page


def test_without_examples_none_are_promised(players: Players, examples: Examples):
    assert "regions of other images" not in drawing.results(explained(players), players, None, "")
    assert "regions of other images" in drawing.results(explained(players), players, examples, "")


def test_nothing_hidden_is_said(players: Players):
    assert "Nothing is hidden yet" in drawing.results(explained(players, 0), players, None, "")


def test_outlines_part_the_grid_among_the_winners():
    """Two slots share it half and half, and a third wins nothing."""
    left = np.array([[0.8, 0.1], [0.8, 0.1]], np.float32)
    found = dict(drawing.outlines(np.stack([left, 0.9 - left, np.full((2, 2), 0.1, np.float32)])))
    side = 10 * drawing.FINE
    assert found.keys() == {0, 1}
    for slot, edges in ((0, (0, side // 2)), (1, (side // 2, side))):
        corners = np.array([*map(float, re.findall(r"\d+", found[slot]))]).reshape(-1, 2)
        assert (corners.min(0), corners.max(0)) == (pytest.approx((edges[0], 0)), pytest.approx((edges[1], side)))


def test_one_slot_alone_has_it_all():
    [(slot, outline)] = drawing.outlines(np.ones((1, 3, 3), np.float32))
    corners = np.array([*map(float, re.findall(r"\d+", outline))]).reshape(-1, 2)
    assert slot == 0
    assert (corners.min(), corners.max()) == (0, 10 * drawing.FINE)


def test_an_example_is_bright_in_its_region_alone(examples: Examples):
    prototype = next(iter(examples.prototypes[3].values()))
    sheet = drawing.strip(torch.ones_like(examples.images), prototype.regions[:1])
    left, top, right, bottom = (round(edge * drawing.EXAMPLE / SIZE) for edge in prototype.regions[0].box)
    bright = np.asarray(sheet.convert("L")) > 230
    inside = np.zeros_like(bright)
    inside[top + 1 : bottom - 1, left + 1 : right - 1] = True
    assert (bright == inside).all()


def test_the_veil_hides_what_is_hidden():
    hidden = torch.zeros(8, 8, dtype=torch.bool)
    hidden[:, :3] = True
    image = torch.rand(3, 8, 8)
    layer = drawing.veil(Pair(image, torch.where(hidden, COLOUR.view(3, 1, 1), image), hidden))
    assert torch.equal(layer[3].bool(), hidden)
    assert torch.equal(layer[:3, 0, 0], COLOUR)
