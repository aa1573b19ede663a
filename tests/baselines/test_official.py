"""Official checkpoints: translated one to one, converted, or refused with the reason."""

import argparse
import pickle
from collections import OrderedDict
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from prism.baselines import convert, official_state_dict
from prism.cli import main
from prism.model.creation import find_checkpoint, open_model
from prism.model.metadata import read_metadata
from tests.baselines import layouts
from tests.baselines.recipe import drawn_weights

NANO = {
    "biformer_nano": layouts.biformer((32, 64, 128, 256), (2, 2, 6, 2)),
    "bixt_nano": layouts.bixt(96, 10, latents=32),
    "pacavit_nano": layouts.pacavit((48, 96, 160, 192), clusters=(49, 49, 49, 0)),
    "debiformer_nano": layouts.debiformer((32, 64, 128, 192), (1, 1, 2, 1), (7, 5, 3, 3), (28, 14, 7, 4)),
}
OFFICIAL = {
    "biformer_tiny": layouts.biformer(),
    "bixt_tiny_patch16": layouts.bixt(),
    "pacavit_tiny": layouts.pacavit(),
    "debiformer_tiny": layouts.debiformer(),
}
State = dict[str, Any]


def marked(layout: layouts.Layout) -> dict[str, Tensor]:
    """Every tensor filled with a number of its own."""
    return {key: torch.full(shape, float(index)) for index, (key, shape) in enumerate(layout.items())}


@pytest.mark.parametrize("name", [*NANO, *OFFICIAL])
def test_translation_is_one_to_one(name: str):
    layout = (NANO | OFFICIAL)[name]
    official = {key: torch.full(shape, 0.0, device="meta") for key, shape in layout.items()}
    ours = official_state_dict(name, official)
    with torch.device("meta"):
        wanted = timm.create_model(name).state_dict()
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in wanted.items()}
    assert len(ours) == len(layout) - ("fourier_pos_encode.pos" in layout)


def test_no_weight_is_lost_or_taken_twice():
    for name, layout in NANO.items():
        numbers = {value.flatten()[0].item() for value in official_state_dict(name, marked(layout)).values()}
        dropped = {index for index, key in enumerate(layout) if key == "fourier_pos_encode.pos"}
        assert numbers == set(range(len(layout))) - dropped


def test_blocks_of_debiformer_are_counted_in_halves():
    ours = official_state_dict("debiformer_nano", state := marked(NANO["debiformer_nano"]))
    for official, key in {
        "stages.2.1.norm3.weight": "stages.2.blocks.3.norm1.weight",
        "stages.2.1.norm2.bias": "stages.2.blocks.2.norm2.bias",
        "stages.0.0.attn1.wo.weight": "stages.0.blocks.0.attn.proj.weight",
        "stages.3.0.attn1.proj_out.weight": "stages.3.blocks.0.attn.proj.weight",
        "stages.1.0.attn2.norm2.weight": "stages.1.blocks.1.attn.agent_norm1.weight",
        "stages.1.0.attn2.norm.weight": "stages.1.blocks.1.attn.agent_norm2.weight",
    }.items():
        assert ours[key].flatten()[0] == state[official].flatten()[0], official


WRAPPINGS: dict[str, Callable[[State], State]] = {
    "bare": lambda state: state,
    "model": lambda state: {"model": state, "args": argparse.Namespace(lr=1e-3)},
    "state_dict": lambda state: {"state_dict": OrderedDict(state), "epoch": 3, "arch": "x"},
    "state_dict_ema": lambda state: {"state_dict_ema": state},
    "model_ema": lambda state: {"model_ema": state},
    "both": lambda state: {"model_ema": {key: value * 0 for key, value in state.items()}, "model": state},
    "module": lambda state: {"model": {f"module.{key}": value for key, value in state.items()}},
    "compiled": lambda state: {"state_dict": {f"module._orig_mod.{key}": value for key, value in state.items()}},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_wrappers_and_prefixes_are_taken_off(wrapping: str):
    state = marked(NANO["biformer_nano"])
    found = official_state_dict("biformer_nano", WRAPPINGS[wrapping](state))
    torch.testing.assert_close(found, official_state_dict("biformer_nano", state))


@pytest.mark.parametrize("name", NANO)
def test_converted_weights_give_the_same_answers(name: str, tmp_path: Path):
    weights = {key: value.float() for key, value in drawn_weights(NANO[name]).items()}
    weights["head.bias"] = weights["head.weight"][:, 0]  # shares its memory
    torch.save({"model": weights, "args": argparse.Namespace(out="x")}, tmp_path / "official.pth")
    convert(name, tmp_path / "official.pth", tmp_path / "ours.safetensors")
    direct = timm.create_model(name).eval()
    direct.load_state_dict(official_state_dict(name, weights))
    opened = open_model(find_checkpoint("", tmp_path / "ours.safetensors"))
    image = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        torch.testing.assert_close(opened(image), direct(image), rtol=0, atol=0)
    said = read_metadata(tmp_path / "ours.safetensors")
    assert said.model == name
    assert said.training == {"source": "official.pth"}
    assert said.preprocessing["size"] == 112  # of the nanos


def without(key: str) -> Callable[[State], State]:
    return lambda state: {k: v for k, v in state.items() if k != key}


BAD: dict[str, tuple[Callable[[State], Any], str]] = {
    "missing key": (without("head.bias"), "'head.bias' is missing"),
    "missing inner key": (without("stages.1.0.attn.wo.weight"), r"'stages\.1\.0\.attn\.wo\.weight' is missing"),
    "extra key": (lambda state: state | {"extra_norms.0.weight": torch.ones(3)}, "'extra_norms.0.weight' is not in"),
    "other shape": (
        lambda state: state | {"head.weight": torch.ones(5, 256)},
        r"'head.weight' has shape \(5, 256\), expected \(1000, 256\)",
    ),
    "another model": (lambda _: marked(NANO["debiformer_nano"]), r"'stages\.0\.0\.pos_embed\.weight' is missing"),
    "another family": (lambda _: marked(NANO["pacavit_nano"]), r"'downsample_layers\.0\.0\.weight' is missing"),
    "a list": (lambda state: list(state.values()), "expected named tensors, got list"),
    "a tensor": (lambda _: torch.ones(3), "expected named tensors, got Tensor"),
    "settings alone": (lambda _: {"epoch": 3}, "expected named tensors, got int at 'epoch'"),
    "nothing": (lambda _: {}, "is missing"),
    "a key twice": (lambda state: state | {"module.head.bias": torch.ones(1000)}, "'head.bias' appears twice"),
    "a key of ours": (
        lambda state: state | {"head.fc.weight": torch.ones(1000, 256)},
        "'head.fc.weight' appears twice",
    ),
    "sparse": (lambda state: state | {"head.weight": torch.ones(1000, 256).to_sparse()}, "'head.weight' is sparse"),
    "whole numbers": (
        lambda state: state | {"head.weight": torch.ones(1000, 256).int()},
        "'head.weight' holds int32 instead of weights",
    ),
    "a foreign class": (lambda state: {"model": state, "args": Fraction(1, 2)}, "pickled fractions.Fraction"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_in_one_sentence(case: str, tmp_path: Path):
    spoil, sentence = BAD[case]
    torch.save(spoil(marked(NANO["biformer_nano"])), tmp_path / "bad.pth")
    with pytest.raises(ValueError, match=rf"^.*bad\.pth is not a checkpoint of biformer_nano: .*{sentence}") as caught:
        convert("biformer_nano", tmp_path / "bad.pth", tmp_path / "out.safetensors")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    "content", [b"", b"not weights", pickle.dumps({"a": 1}), b"PK\x03\x04 a broken archive"], ids=repr
)
def test_other_files_are_refused(content: bytes, tmp_path: Path):
    (tmp_path / "bad.pth").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.pth is not a checkpoint of biformer_nano: [^\n]*$"):
        convert("biformer_nano", tmp_path / "bad.pth", tmp_path / "out.safetensors")


def test_a_conversion_that_fails_keeps_the_file_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    torch.save(marked(NANO["biformer_nano"]), tmp_path / "official.pth")
    out = tmp_path / "ours.safetensors"
    out.write_bytes(b"before")

    def fill_the_disk(_: State, path: Path, __: dict[str, str]) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("prism.baselines.official.save_file", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        convert("biformer_nano", tmp_path / "official.pth", out)
    assert out.read_bytes() == b"before"
    assert {path.name for path in tmp_path.iterdir()} == {"official.pth", "ours.safetensors"}


def test_bad_arguments_are_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere\.pth"):
        convert("biformer_nano", tmp_path / "nowhere.pth", tmp_path / "out.safetensors")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        convert("biformer_nano", tmp_path, tmp_path / "out.safetensors")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        convert("biformer_nano", tmp_path / "x.pth", tmp_path / "nowhere" / "out.safetensors")
    with pytest.raises(ValueError, match=r"must be a \.safetensors file, got .*out\.pth"):
        convert("biformer_nano", tmp_path / "x.pth", tmp_path / "out.pth")
    with pytest.raises(
        ValueError, match="no official checkpoints are known for 'prism_nano', only for biformer_nano, "
    ):
        convert("prism_nano", tmp_path / "x.pth", tmp_path / "out.safetensors")
    with pytest.raises(ValueError, match="no official checkpoints are known for 'biformer'"):
        official_state_dict("biformer", {})


def test_the_command_converts_and_the_file_is_taken_by_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = timm.create_model("biformer_tiny")
    state = drawn_weights(OFFICIAL["biformer_tiny"])
    model.load_state_dict(official_state_dict("biformer_tiny", state))
    torch.save({"model": state}, tmp_path / "official.pth")
    main(["convert", "biformer_tiny", str(tmp_path / "official.pth"), str(tmp_path / "ours.safetensors")])
    assert "wrote" in capsys.readouterr().out
    found = open_model(find_checkpoint("", tmp_path / "ours.safetensors"))
    assert all(torch.equal(value, found.state_dict()[key]) for key, value in model.state_dict().items())
    with pytest.raises(SystemExit, match=r"is not a checkpoint of pacavit_tiny: .* is missing"):
        main(["convert", "pacavit_tiny", str(tmp_path / "official.pth"), str(tmp_path / "wrong.safetensors")])
