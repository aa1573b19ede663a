"""The weights inside the package: small, whole, and at hand without a network."""

import socket
from pathlib import Path

import pytest
import timm
import torch
from safetensors import safe_open

import prism
from prism import Prism
from prism.model.creation import find_checkpoints, open_model
from prism.model.metadata import read_metadata
from prism.model.weights import TAGS, read_weights, shipped

FILES = sorted((Path(prism.__file__).parent / "weights").glob("*.safetensors"))
LARGEST = 8_000_000  # bytes of one
LARGEST_TOGETHER = 26_000_000  # two classifiers, each with its peer


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_are_small_and_say_what_they_are(file: Path):
    assert shipped(file.stem) == file
    assert file.stat().st_size <= LARGEST
    metadata = read_metadata(file)
    assert metadata.model == file.stem.split(".")[0]
    assert len(metadata.titles or ()) == len(metadata.classes or ()) == 10
    with safe_open(file, "pt") as stored:
        for key in stored.keys():  # noqa: SIM118
            assert stored.get_tensor(key).dtype != torch.float32 or "codebook" in key


def test_together_they_are_small_too():
    assert sum(file.stat().st_size for file in FILES) <= LARGEST_TOGETHER


@pytest.mark.parametrize("name", ["prism_nano", *(file.stem for file in FILES if "prism" in file.stem)])
def test_timm_creates_the_trained_model(name: str):
    model = timm.create_model(name, pretrained=True).eval()
    assert isinstance(model, Prism)
    assert model.num_classes == 10
    side = model.pretrained_cfg["input_size"][-1]
    file = shipped(name)
    assert file is not None
    assert side == read_metadata(file).preprocessing["size"]
    found = model.state_dict()
    for key, value in read_weights(file).items():
        assert found[key].equal(value.to(found[key].dtype)), key
    image = torch.randn(2, 3, side, side)
    [checkpoint] = find_checkpoints(name, pretrained=True)
    assert open_model(checkpoint)(image).equal(model(image))


def test_a_name_without_a_tag_is_of_the_first_tag():
    assert shipped("prism_nano") == shipped(f"prism_nano.{TAGS[0]}")
    assert shipped("prism_nano.nowhere") is None


def test_it_drops_into_other_tasks():
    maps = timm.create_model("prism_nano", pretrained=True, features_only=True)(torch.randn(1, 3, 64, 64))
    assert [m.shape[-1] for m in maps] == [16, 8, 4, 2]
    assert timm.create_model("prism_nano", pretrained=True, num_classes=3).num_classes == 3


def test_without_pretrained_nothing_of_it_shows():
    model = timm.create_model("prism_nano")
    assert model.num_classes == 1000
    assert model.max_steps == 5
