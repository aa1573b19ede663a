"""The samples of the default page show what they say they show."""

import json
import re

import pytest

from prism.app import stories
from prism.app.networks import Players, open_players
from prism.app.stories import STORIES, Story, told
from prism.model.weights import shipped


@pytest.fixture(scope="module")
def players() -> Players:
    prism, pvt = shipped("prism_nano.scenes"), shipped("pvt_v2_b0.scenes")
    assert prism is not None
    return open_players(prism, pvt)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.note)
def test_the_story_is_true(players: Players, story: Story):
    assert story.holds(told(players, story))


def test_the_search_names_scenes_that_tell_a_story(players: Players, monkeypatch, capsys):
    monkeypatch.setattr(stories, "SEARCHED", 3)
    monkeypatch.setattr(stories, "STORIES", (Story(0, "even ones"), Story(0, "none", holds=lambda told: False)))
    stories.search(players)
    assert [*map(sorted, map(json.loads, re.findall(r"\[.*\]", capsys.readouterr().out)))] == [[0, 2], []]
