"""Which files a playground can be opened with."""

import sys
from pathlib import Path

import pytest

from prism.app import server
from prism.app.networks import open_players
from prism.app.stories import STORIES
from prism.cli import main
from prism.data.scenes import SHAPES
from tests.app.small import SIZE, save_baseline, save_prism


def test_a_prism_and_a_baseline(tmp_path: Path):
    players = open_players(save_prism(tmp_path / "a.safetensors"), save_baseline(tmp_path / "b.safetensors"))
    assert players.classes == list(SHAPES)
    assert players.size == SIZE
    assert players.network is players.ours.model
    assert players.baseline is not None
    assert players.baseline.name == "test_resnet"
    assert open_players(tmp_path / "a.safetensors", None).baseline is None


def test_costs_are_known_from_the_start(tmp_path: Path):
    players = open_players(save_prism(tmp_path / "a.safetensors"), save_baseline(tmp_path / "b.safetensors"))
    assert players.cost.macs([2, 1, 1, 1]) > players.cost.macs([1, 1, 1, 1]) > 0
    assert players.baseline_macs > 0


def test_without_a_file_those_of_the_package_play(monkeypatch):
    monkeypatch.setattr("prism.app.samples.EXAMPLES", 2)
    scenes, photographs = server.open_playgrounds(None, None, None)
    assert (scenes.name, photographs.name) == ("Scenes", "Photographs")
    for playground in (scenes, photographs):
        assert playground.players.baseline is not None
        assert playground.players.baseline.name == "pvt_v2_b0"
    assert [sample.note for sample in scenes.samples] == [story.note for story in STORIES]
    assert photographs.players.titles[0] == "tench"
    assert photographs.samples[0].truth == "parachute"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "ships no weights: pass --checkpoint"),
        (("--baseline", "{place}/baseline.safetensors"), "--baseline needs --checkpoint"),
        (("--checkpoint", "{place}/none.safetensors"), "there is no checkpoint"),
        (("--checkpoint", "{place}/baseline.safetensors"), "which is not a PRISM model: pass it as --baseline"),
        (("--checkpoint", "{place}/detector.safetensors"), "is for detection"),
        (("--checkpoint", "{place}/ours.safetensors", "--baseline", "{place}/large.safetensors"), "at 96 pixels"),
        (("--checkpoint", "{place}/ours.safetensors", "--baseline", "{place}/other.safetensors"), "was not trained on"),
        (("--checkpoint", "{place}/cats.safetensors", "--examples", "{place}/none"), "there is no folder"),
        (("--checkpoint", "{place}/cats.safetensors", "--examples", "{place}/empty"), "there is no image in"),
        (
            ("--checkpoint", "{place}/ours.safetensors", "--host", "no.such.host.invalid"),
            "cannot listen on no.such.host.invalid:7860",
        ),
        (("--checkpoint", "{place}/ours.safetensors", "--port", "70000"), "from 1 to 65535, got 70000"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch
):
    cats = '["cat", "dog", "c", "d", "e", "f", "g", "h", "i", "j"]'
    save_prism(tmp_path / "ours.safetensors")
    save_prism(tmp_path / "cats.safetensors", {"classes": cats})
    save_prism(tmp_path / "detector.safetensors", {"task": "detection"})
    save_baseline(tmp_path / "baseline.safetensors")
    save_baseline(tmp_path / "large.safetensors", {"size": "96"})
    save_baseline(tmp_path / "other.safetensors", {"classes": cats})
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(server, "shipped", lambda name: None)
    monkeypatch.setattr("prism.app.samples.EXAMPLES", 2)
    with pytest.raises(SystemExit) as stopped:
        main(["app", *(argument.format(place=tmp_path) for argument in arguments)])
    message = stopped.value.code
    assert isinstance(message, str)
    assert message.startswith("prism: ")
    assert said in message
    assert "\n" not in message


def test_without_a_server_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "prism.app.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit, match=r"uvicorn is not installed; in a clone of PRISM: pip install '.\[app\]'"):
        main(["app"])
