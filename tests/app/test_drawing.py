"""What is drawn is what was found, inside one page, and no name can break out of it."""

import base64
import re
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from prism.analysis.pairs import hide
from prism.app import drawing, samples
from prism.app.explanation import Explanation, Switches, explain
from prism.app.intake import as_pixels, read_url
from prism.app.networks import Players, open_players
from prism.app.samples import Examples
from prism.data.scenes import SHAPES
from prism.occlusion.benchmark import Setting
from prism.occlusion.masks import mask_generator
from tests.app.small import SIZE, save_baseline, save_prism

COLOUR = torch.tensor([0.2, 0.4, 0.6])
USUAL = Switches()


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


def explained(players: Players, switches: Switches = USUAL, strength: float = 112) -> Explanation:
    image = as_pixels(read_url(samples.samples(players, None)[0].image), SIZE)
    return explain(players, hide(image, Setting("BlockMask", strength), mask_generator(0, 0), COLOUR), switches)


def test_everything_is_there_and_inside_the_page(players: Players, examples: Examples):
    found = explained(players)
    page = drawing.results(found, examples, SHAPES[0])
    assert page.count('<div class="answer">') == 2
    assert page.count("</li>") == 2 * 2 * 5
    assert page.count('<div class="stage">') == 4
    assert page.count("data-step=") == sum(len(s.clean) + len(s.occluded) for s in found.stages)
    assert page.count("<polyline") == 4
    assert "25% of the image is hidden" in page
    assert all(source.startswith("data:image/") for source in re.findall(r'src="([^"]*)"', page))
    assert "http" not in re.sub(r"data:[^\"]*", "", page)


def test_the_right_class_is_marked(players: Players):
    found = explained(players)
    named = found.answers[0].clean[0].name
    assert f'<li class=right><span class="bar" style="width:{100 * found.answers[0].clean[0].probability:.1f}%">' in (
        drawing.results(found, None, named)
    )
    assert "class=right" not in drawing.results(found, None, "")


def test_names_are_text(players: Players):
    evil = "<img src=x onerror=alert(1)>"
    strange = players._replace(titles=[evil] * len(SHAPES))
    page = drawing.results(explained(strange), None, evil)
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page


def test_without_memory_or_examples_it_says_so(players: Players, examples: Examples):
    assert "the memory is off" in drawing.results(explained(players, Switches(memory=False)), examples)
    assert "with other images" not in drawing.results(explained(players), None)
    assert "with other images" in drawing.results(explained(players), examples)


def test_nothing_hidden_has_no_curve(players: Players):
    page = drawing.results(explained(players, strength=0), None)
    assert "<polyline" not in page
    assert "Nothing is hidden yet" in page


def test_positions_of_one_slot_have_one_colour():
    winners = np.array([[0, 1], [1, 0]])
    drawn = np.asarray(drawing.slot_map(winners, np.full((8, 8, 3), 255, np.uint8)))
    side = drawing.MAP
    half, inner = side // 2, side // 2 - 1
    assert drawn.shape == (side, side, 3)
    assert (drawn[:inner, :inner] == drawn[half:-1, half:-1]).all()
    assert (drawn[:inner, :inner] != drawn[:inner, half:-1]).any()
    assert (drawn[inner] == 255).all(), "a white line parts slots"
    assert (drawn[:, inner] == 255).all()


def test_a_slot_map_is_never_large():
    assert drawing.slot_map(np.zeros((7, 7), int), np.zeros((448, 448, 3), np.uint8)).size == (drawing.MAP, drawing.MAP)


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
    url = drawing.veil(hidden, COLOUR)
    layer = np.asarray(_opened(url).convert("RGBA"))
    assert ((layer[..., 3] == 255) == hidden.numpy()).all()
    assert ((layer[..., 3] == 0) == ~hidden.numpy()).all()
    assert tuple(layer[0, 0, :3]) == tuple(round(255 * part) for part in COLOUR.tolist())


def test_labels_at_the_ends_of_lines_keep_apart():
    placed = drawing._apart([50.0, 51.0, 10.0, 50.5], 18)
    assert placed[2] == 10
    assert min(np.diff(sorted(placed))) >= 18
    assert sorted(range(4), key=placed.__getitem__) == [2, 0, 3, 1]


def _opened(url: str) -> Image.Image:
    return Image.open(BytesIO(base64.b64decode(url.partition(",")[2])))
