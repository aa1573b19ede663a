"""What files say about their weights: today's schema, the files from before it, and what is refused."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from prism import Prism
from prism.model.creation import find_checkpoint, open_model
from prism.model.metadata import NETWORK, Metadata, model_arguments, read_metadata

FULL = Metadata(
    model="prism_nano",
    task="detection",
    network={"widths": (8, 12), "slots": (2, 2), "memory": "off", "halting_start": None},
    classes=["a", "b"],
    titles=["one", "two"],
    preprocessing={"size": 64, "crop": None, "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.2] * 3},
    design={"head": "retinanet", "sizes": [64]},
    training={"seed": 3},
    tag="small",
)


def written(path: Path, header: dict[str, str]) -> Path:
    save_file({"a": torch.zeros(1)}, path, header)
    return path


def test_what_is_written_is_read(tmp_path: Path):
    assert read_metadata(written(tmp_path / "w.safetensors", FULL.header())) == FULL
    assert read_metadata(written(tmp_path / "m.safetensors", {"format": "pt"})).model == ""


def test_every_argument_of_prism_can_be_kept():
    """Those that `create_model` is given by its caller aside: a new argument needs its type and bounds there."""
    own = {*inspect.signature(Prism.__init__).parameters} - {"self", "in_chans", "num_classes", "global_pool"}
    assert own == {*NETWORK}


def test_files_from_before_the_schema(tmp_path: Path):
    """As the first versions wrote them, one of each task."""
    words = "code_decay=0.9 slots=(12,12,4,4) ffn_ratio=3 max_steps=3 halting_start=0.25"
    given = model_arguments(words.split())
    network = Prism(widths=(8, 12, 16, 20), **given, evidence=False, slot_ratio=3, code_width=0.5, num_classes=2)
    classifier = {"model": "prism_nano", "network": words, "classes": '["a", "b"]', "tag": "old", "size": "64",
                  "mean": "[0.5, 0.5, 0.5]", "epoch": "10", "hidden in training": "scattered"}  # fmt: skip
    save_file(network.state_dict(), tmp_path / "c.safetensors", classifier)
    own = read_metadata(tmp_path / "c.safetensors")
    assert own.network == given | dict(evidence=False, slot_ratio=3, code_width=0.5)  # as its weights show
    assert (own.task, own.tag, own.version, own.classes) == ("classification", "old", 0, ["a", "b"])
    assert own.preprocessing == {"size": 64, "mean": [0.5] * 3}
    assert own.training == {"epoch": "10", "hidden in training": "scattered"}
    design = dict(model="prism_nano", head="maskrcnn", width=16, sizes=[64], longest=96)
    detector = {"task": "detection", "model": "prism_nano", "network": "", "classes": '["a"]', "categories": "[7]",
                "size": "64", "design": json.dumps(design), "amodal": "false"}  # fmt: skip
    found = read_metadata(written(tmp_path / "d.safetensors", detector))
    assert found.design == design | {"categories": [7], "amodal": False}
    segmenter = {"task": "segmentation", "model": "resnet10t", "network": "", "classes": '["a"]', "width": "16",
                 "dropout": "0.1", "fit": "[96, 64]"}  # fmt: skip
    found = read_metadata(written(tmp_path / "s.safetensors", segmenter))
    assert found.design == {"width": 16, "dropout": 0.1, "fit": [96, 64]}


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("checkpoint_path=/etc/passwd", "network has no argument 'checkpoint_path'"),
        ("pretrained=True", "network has no argument 'pretrained'"),
        ("pretrained_cfg={'url':'http://x'}", "network has no argument 'pretrained_cfg'"),
        ("scriptable=True", "network has no argument 'scriptable'"),
        ("codes=99999999", "codes must be a whole number from 1 to 1000000"),
        ("widths=3", "widths must be a list"),
        ("max_steps=True", "max_steps must be a whole number"),
        ("memory=hole", "memory must be one of vq, continuous, off"),
    ],
)
def test_only_listed_arguments_ever_reach_a_model(network: str, reason: str, tmp_path: Path):
    with pytest.raises(ValueError, match=reason.split("'")[0]):
        model_arguments([network])
    old = written(tmp_path / "old.safetensors", {"model": "prism_nano", "network": network})
    with pytest.raises(ValueError, match=r"^invalid metadata in .*old\.safetensors: network"):
        find_checkpoint("", old)
    key, _, text = network.partition("=")
    value = {"True": True, "3": 3, "99999999": 99999999}.get(text, text)
    new = written(tmp_path / "new.safetensors", FULL.header() | {"network": json.dumps({key: value})})
    with pytest.raises(ValueError, match=r"^invalid metadata in .*new\.safetensors: network"):
        find_checkpoint("", new)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("classes", "[1, 2]", "classes must be a text"),
        ("classes", "{", "classes is not JSON"),
        ("titles", '["one"]', "the number of titles must equal the number of classes"),
        ("preprocessing", '{"size": 0}', "preprocessing size must be a whole number from 1"),
        ("preprocessing", '{"std": [0, 1, 1]}', "preprocessing std must be a number from 1e-06"),
        ("preprocessing", '{"crop": 2}', "preprocessing crop must be"),
        ("preprocessing", '{"mean": [NaN, 0, 0]}', "preprocessing mean must be a number"),
        ("design", "[]", "design must be an object"),
        ("model", "3", "model must be a text"),
        ("version", "9", "version 9 is newer than this package"),
        ("version", "null", "version must be a whole number"),
    ],
)
def test_invalid_metadata_is_one_sentence_with_file_and_key(key: str, value: str, reason: str, tmp_path: Path):
    path = written(tmp_path / "bad.safetensors", FULL.header() | {key: value})
    with pytest.raises(ValueError, match=f"^invalid metadata in {path}: {reason}") as refused:
        read_metadata(path)
    assert "\n" not in str(refused.value)


def small_file(path: Path, **changes: Any) -> Path:
    """A real PRISM of ten classes, and what the changes make of its metadata."""
    arguments = dict(widths=(8, 12), slots=(2, 2), codes=8)
    torch.manual_seed(0)
    metadata = replace(Metadata(model="prism_nano", network=arguments, classes=[*"abcdefghij"]), **changes)
    weights = timm.create_model("prism_nano", num_classes=10, **arguments).state_dict()
    save_file(weights, path, metadata.header())
    return path


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (dict(classes=["a"]), "1 classes, but its weights are for 10"),
        (dict(titles=["a"]), "the number of titles must equal the number of classes"),
        (dict(preprocessing={"mean": [0.5]}), "preprocessing mean must be a list of 3 to 3 values"),
        (dict(preprocessing={"mean": "grey"}), "preprocessing mean must be a list"),
        (dict(preprocessing={"size": "large"}), "preprocessing size must be a whole number"),
        (dict(preprocessing={"size": 10**6}), "preprocessing size must be a whole number from 1 to 4096"),
        (dict(preprocessing={"size": 4096, "crop": 0.1}), "size and crop ask for images of 40960 pixels"),
        (dict(preprocessing={"crop": None}), "a classifier sees images of one size"),
        (dict(model="prism_nano.x"), "no model is called 'prism_nano.x'"),
        (
            dict(model="vit_giant_patch14_224", network={}, classes=None),
            "does not fit: the checkpoint is from a different model, as the network has",
        ),
        (
            dict(network=dict(widths=(60_000, 60_000), slots=(2, 2))),
            "does not fit: the checkpoint is from a different model, as the network has",
        ),
        (
            dict(network=dict(widths=(8, 12), slots=(2, 2), codes=1_000_000)),
            "does not fit: the checkpoint is from a different model, as the network has",
        ),
    ],
)
def test_what_contradicts_the_weights_is_refused_before_memory_is_taken(changes, reason: str, tmp_path: Path):
    path = small_file(tmp_path / "w.safetensors", **changes)
    with pytest.raises(ValueError, match=re.escape(reason)) as refused:
        open_model(find_checkpoint("", path))
    assert "\n" not in str(refused.value)


def test_an_honest_file_is_opened(tmp_path: Path):
    assert open_model(find_checkpoint("", small_file(tmp_path / "w.safetensors"))).num_classes == 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[" * 100_000, "nested too deeply"), ("9" * 400, "must be a text"), ("9" * 5000, "must be a text")],
)
def test_json_that_no_reader_expects_is_a_sentence(text: str, reason: str, tmp_path: Path):
    path = written(tmp_path / "bad.safetensors", FULL.header() | {"model": text})
    with pytest.raises(ValueError, match=reason):
        read_metadata(path)
