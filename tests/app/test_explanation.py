"""What is shown of an image follows from the image, the mask and the switches, and from nothing else."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from prism.analysis.pairs import Pair, hide, normalise
from prism.app.explanation import Switches, explain, twin
from prism.app.networks import Players, open_players
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
    found = explain(players, pair, Switches())
    for answer, subject in zip(found.answers, (players.ours, players.baseline), strict=True):
        assert subject is not None
        for choices, image in ((answer.clean, pair.clean), (answer.occluded, pair.occluded)):
            with torch.inference_mode():
                wanted = subject.model(normalise(image[None], subject.mean, subject.std))[0].softmax(0)
            assert len(choices) == 5
            assert [c.probability for c in choices] == sorted((c.probability for c in choices), reverse=True)
            for name, probability in choices:
                assert float(wanted[players.classes.index(name)]) == pytest.approx(probability, abs=1e-5)


def test_nothing_hidden_changes_nothing_and_has_nothing_to_recover(players: Players):
    found = explain(players, hide(scene(), CLEAN, mask_generator(0, 0), COLOUR), Switches())
    assert all(answer.clean == answer.occluded for answer in found.answers)
    assert all(np.array_equal(a, b) for s in found.stages for a, b in zip(s.clean, s.occluded, strict=True))
    assert found.recovery is None


def test_recovery_has_every_step_of_every_stage(players: Players):
    found = explain(players, half_hidden(), Switches())
    assert found.recovery is not None
    assert [len(curve) for curve in found.recovery] == [players.network.max_steps] * 4
    assert all(-1 <= cosine <= 1 + 1e-5 for curve in found.recovery for cosine in curve)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_fixed_steps_are_taken(players: Players, steps: int):
    stages = explain(players, half_hidden(), Switches(steps=steps)).stages
    assert {len(maps) for stage in stages for maps in (stage.clean, stage.occluded)} == {steps}


def test_the_memory_recalls_codes_of_slots_that_hold_something_unless_it_is_off(players: Players):
    found = explain(players, half_hidden(), Switches())
    for stage in found.stages:
        assert stage.recalled
        assert len({each.slot for each in stage.recalled}) == len(stage.recalled)
        assert all(0 <= each.code < 16 for each in stage.recalled)
        assert sum(each.share for each in stage.recalled) <= 1 + 1e-5
    off = explain(players, half_hidden(), Switches(memory=False))
    assert all(stage.recalled is None for stage in off.stages)
    assert off.answers[0].clean != found.answers[0].clean


def test_the_network_is_left_as_it_was(players: Players):
    before = players.network.memory, players.network.fixed_steps
    explain(players, half_hidden(), Switches(memory=False, steps=1))
    assert (players.network.memory, players.network.fixed_steps) == before
    with pytest.raises(ValueError, match="fixed_steps"):
        twin(players.network, Switches(steps=0))
    assert (players.network.memory, players.network.fixed_steps) == before


def test_twins_are_made_once_and_share_the_weights(players: Players):
    own, forgetful = twin(players.network, Switches()), twin(players.network, Switches(memory=False))
    assert own is twin(players.network, Switches())
    assert forgetful.memory == "off"
    for weight, same, again in zip(players.network.parameters(), own.parameters(), forgetful.parameters(), strict=True):
        assert weight is same is again


def test_visitors_with_other_switches_do_not_disturb_each_other(players: Players):
    wishes = [Switches(), Switches(memory=False), Switches(steps=1), Switches(memory=False, steps=3)] * 4
    alone = [explain(players, half_hidden(), wish) for wish in wishes]
    with ThreadPoolExecutor(8) as visitors:
        together = list(visitors.map(lambda wish: explain(players, half_hidden(), wish), wishes))
    for a, b in zip(alone, together, strict=True):
        assert a.answers == b.answers
        assert a.recovery == b.recovery
        assert [len(s.occluded) for s in a.stages] == [len(s.occluded) for s in b.stages]
