"""What the page shows depends on the image and the mask only."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from prism.analysis.pairs import Pair, hide
from prism.analysis.variants import switched
from prism.app.explanation import Answer, Choice, explain, twin
from prism.app.networks import Players, open_players
from prism.data.preprocessing import normalise
from prism.data.scenes import render_scene
from prism.occlusion.benchmark import CLEAN, Setting
from prism.occlusion.masks import mask_generator
from tests.app.small import SIZE, save_baseline, save_prism

COLOUR = torch.tensor([0.2, 0.4, 0.6])
NOTHING = torch.zeros(SIZE, SIZE, dtype=torch.bool)


@pytest.fixture(scope="module")
def players(tmp_path_factory: pytest.TempPathFactory) -> Players:
    place = tmp_path_factory.mktemp("weights")
    return open_players(save_prism(place / "a.safetensors"), save_baseline(place / "b.safetensors"))


def scene(seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(render_scene(SIZE, seed)).permute(2, 0, 1) / 255


def half_hidden(seed: int = 0) -> Pair:
    return hide(scene(seed), Setting("BlockMask", 140), mask_generator(0, seed), COLOUR)


def test_what_is_painted_and_what_is_masked_are_both_hidden():
    painted = NOTHING.clone()
    painted[:4] = True
    image = scene()
    pair = hide(image, Setting("BlockMask", 112), mask_generator(0, 3), COLOUR, painted)
    masked = hide(image, Setting("BlockMask", 112), mask_generator(0, 3), COLOUR).hidden
    assert masked.sum() == (SIZE // 2) ** 2
    assert torch.equal(pair.hidden, painted | masked)
    assert torch.equal(pair.occluded[:, ~pair.hidden], image[:, ~pair.hidden])
    assert (pair.occluded[:, pair.hidden] == COLOUR[:, None]).all()
    assert torch.equal(pair.clean, image)


def test_the_answers_are_the_networks_own(players: Players):
    pair = half_hidden()
    whole, hidden, *_ = explain(players, pair).readings
    for place, subject in enumerate((players.ours, players.baseline)):
        assert subject is not None
        for reading, image in ((whole, pair.clean), (hidden, pair.occluded)):
            with torch.inference_mode():
                wanted = subject.model(normalise(image[None], subject.mean, subject.std))[0].softmax(0)
            choices = reading.answers[place].choices
            assert len(choices) == 3
            assert [c.probability for c in choices] == sorted((c.probability for c in choices), reverse=True)
            for name, probability in choices:
                assert float(wanted[players.classes.index(name)]) == pytest.approx(probability, abs=1e-5)


def test_nothing_hidden_changes_nothing(players: Players):
    found = explain(players, hide(scene(), CLEAN, mask_generator(0, 0), COLOUR))
    for whole, hidden in zip(*(reading.answers for reading in found.readings[:2]), strict=True):
        assert dict(hidden.choices) == pytest.approx(dict(whole.choices), abs=1e-5)  # a batch may round in its last bit
    for stage in found.stages:
        np.testing.assert_allclose(stage.whole, stage.hidden, atol=1e-5)


def test_the_other_columns_are_the_same_weights_under_other_switches(players: Players):
    pair = half_hidden()
    _, hidden, forgetful, brief = (reading.answers[0] for reading in explain(players, pair).readings)
    seen = normalise(pair.occluded[None], players.ours.mean, players.ours.std)
    for answer, switches in ((forgetful, {"memory": "off"}), (brief, {"fixed_steps": 1})):
        with torch.inference_mode():
            wanted = switched(players.network, **switches)(seen)[0].softmax(0)
        assert float(wanted.max()) == pytest.approx(answer.choices[0].probability, abs=1e-5)
    assert forgetful.choices != hidden.choices
    assert brief.steps == [1, 1, 1, 1]
    assert brief.macs == players.cost.at_one_step <= hidden.macs


def test_a_stage_shows_the_steps_it_took_and_what_its_slots_recalled(players: Players):
    found = explain(players, half_hidden())
    for stage, steps in zip(found.stages, found.readings[1].answers[0].steps or (), strict=True):
        assert len(stage.hidden) == steps
        np.testing.assert_allclose(stage.hidden.sum(1), 1, atol=1e-5)
        assert stage.recalled
        assert all(0 <= each.code < 16 for each in stage.recalled)
        assert sum(each.share for each in stage.recalled) <= 1 + 1e-5


def test_a_first_choice_below_one_half_is_no_answer():
    assert not Answer("x", [Choice("a", 0.49)], 0).sure
    assert Answer("x", [Choice("a", 0.5)], 0).sure


def test_twins_are_made_once_and_share_the_weights(players: Players):
    before = players.network.memory, players.network.fixed_steps
    forgetful = twin(players.network, memory="off")
    assert forgetful is twin(players.network, memory="off")
    assert forgetful.memory == "off"
    assert (players.network.memory, players.network.fixed_steps) == before
    for weight, same in zip(players.network.parameters(), forgetful.parameters(), strict=True):
        assert weight is same


def test_visitors_at_the_same_time_do_not_disturb_each_other(players: Players):
    pairs = [half_hidden(seed) for seed in (1, 2, 3)] * 3
    alone = [explain(players, pair).readings for pair in pairs]
    with ThreadPoolExecutor(8) as visitors:
        together = [found.readings for found in visitors.map(lambda pair: explain(players, pair), pairs)]
    assert together == alone
