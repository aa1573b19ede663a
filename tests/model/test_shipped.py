"""The weights inside the package: small, whole, and at hand without a network."""

import json
import socket

import pytest
import timm
import torch
from safetensors import safe_open

from prism import Prism
from prism.model.creation import find_checkpoints, open_model
from prism.model.metadata import read_header
from prism.model.weights import read_weights, shipped

LARGEST = 8_000_000  # bytes


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", ["prism_nano", "pvt_v2_b0"])
def test_files_are_small_and_say_what_they_are(name: str):
    file = shipped(name)
    assert file is not None
    assert file.stat().st_size <= LARGEST
    about = read_header(file)
    assert about["model"] == name
    assert len(json.loads(about["titles"])) == len(json.loads(about["classes"])) == 10
    with safe_open(file, "pt") as stored:
        for key in stored.keys():  # noqa: SIM118
            assert stored.get_tensor(key).dtype != torch.float32 or "codebook" in key


def test_timm_creates_the_trained_model():
    model = timm.create_model("prism_nano", pretrained=True).eval()
    assert isinstance(model, Prism)
    assert model.num_classes == 10
    assert model.pretrained_cfg["input_size"] == (3, 64, 64)
    wanted = read_weights(shipped("prism_nano"))  # pyright: ignore
    for name, value in model.state_dict().items():
        assert value.equal(wanted[name].to(value.dtype)), name
    image = torch.randn(2, 3, 64, 64)
    [checkpoint] = find_checkpoints("prism_nano", pretrained=True)
    assert open_model(checkpoint)(image).equal(model(image))


def test_it_drops_into_other_tasks():
    maps = timm.create_model("prism_nano", pretrained=True, features_only=True)(torch.randn(1, 3, 64, 64))
    assert [m.shape[-1] for m in maps] == [16, 8, 4, 2]
    assert timm.create_model("prism_nano", pretrained=True, num_classes=3).num_classes == 3


def test_without_pretrained_nothing_of_it_shows():
    model = timm.create_model("prism_nano")
    assert model.num_classes == 1000
    assert model.max_steps == 5
