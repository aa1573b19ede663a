"""A sample of the campaign: `make attack` is all of it."""

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.attack.__main__ import FAILURES
from tests.attack.campaign import Campaign
from tests.attack.mutation import mutate_json
from tests.attack.outcome import attempt, unsound

RUNS = 300
# whole trainings, reports and figures take seconds each: kinds of inputs, and verbs
SLOW = ("kept", "folder", "shards", "saved", "occlusion", "study", "slots", "speed", "app", "feed scenes")


@pytest.mark.filterwarnings("ignore")  # foreign files are full of them
def test_no_bad_input_gets_a_traceback_hangs_or_passes_unnoticed(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    campaign = Campaign(tmp_path, seed=0, without=SLOW)
    kinds, wrong = Counter(), []
    for number in range(RUNS):
        kind, words, outcome = campaign.run(number)
        kinds[kind] += 1
        if outcome.kind in FAILURES:
            wrong.append(f"--only {number}: {kind}: {words}\n{outcome.said[-1000:]}")
    assert not wrong, "\n".join(wrong)
    assert min(kinds.values()) > 5
    os.chdir("/")


def test_the_judge_sees_a_traceback_and_a_number_that_is_none(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("prism.commands.recipes.recipes", lambda: 1 / 0)
    assert attempt(["recipes"]).kind == "traceback"
    monkeypatch.setattr("prism.commands.recipes.recipes", lambda: (_ for _ in ()).throw(ValueError("a reason")))
    assert attempt(["recipes"]).kind == "sentence"
    (tmp_path / "a.json").write_text("[NaN]")
    assert unsound(tmp_path) == "a.json: it holds NaN"
    (tmp_path / "a.json").write_text("[1]")
    (tmp_path / "b.csv").write_text("a,b\n1,nan\n")
    assert unsound(tmp_path) == "b.csv has nan"


def test_the_same_number_makes_the_same_attempt():
    texts = [mutate_json({"a": [1, {"b": 2}]}, Random("0 1")) for _ in range(2)]
    assert texts[0] == texts[1] != '{"a": [1, {"b": 2}]}'
