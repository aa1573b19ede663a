import json
from pathlib import Path

import pytest
import timm
from safetensors.torch import save_file
from timm.data import resolve_data_config

from prism import Prism
from prism.model.creation import Checkpoint, find_checkpoint, find_checkpoints, open_model
from prism.model.metadata import read_header


def test_a_model_is_named_by_its_name_its_file_or_both(tmp_path: Path):
    folder = tmp_path / "lr=3"
    folder.mkdir()
    weights = timm.create_model("resnet10t", num_classes=2).state_dict()
    for name in ("a", "b"):
        save_file(weights, folder / f"{name}.safetensors", {"model": "resnet10t"})
    assert find_checkpoints("resnet10t") == [Checkpoint("resnet10t")]
    assert find_checkpoints(str(folder / "a.safetensors")) == [find_checkpoint("resnet10t", folder / "a.safetensors")]
    (tmp_path / "b.safetensors").write_bytes((folder / "b.safetensors").read_bytes())
    several = find_checkpoints(f"resnet10t={tmp_path}/b.safetensors,{folder}/a.safetensors")
    assert [found.file for found in several] == [tmp_path / "b.safetensors", folder / "a.safetensors"]
    assert open_model(several[0], num_classes=9).num_classes == 2  # as its weights


def test_a_model_is_opened_as_it_was_trained(tmp_path: Path):
    about = {"model": "prism_nano", "network": "memory=off max_steps=3 code_decay=0.9", "classes": '["x", "y"]',
             "size": "64", "mean": "[0.1, 0.2, 0.3]", "std": "[1, 1, 1]", "seed": "4"}  # fmt: skip
    weights = timm.create_model("prism_nano", num_classes=2).state_dict()
    save_file(weights, tmp_path / "w.safetensors", about)
    assert read_header(tmp_path / "w.safetensors") == about
    found = find_checkpoint("", tmp_path / "w.safetensors")
    assert (found.name, found.classes, found.size) == ("prism_nano", ["x", "y"], 64)
    model = open_model(found)
    assert isinstance(model, Prism)
    assert not model.training
    assert (model.memory, model.max_steps, model.num_classes) == ("off", 3, 2)
    assert list(resolve_data_config(model=model)["mean"]) == json.loads(about["mean"])
    save_file(weights, tmp_path / "odd.safetensors", about | {"network": "wings=2"})
    with pytest.raises(ValueError, match=r"odd\.safetensors: network has no argument 'wings'"):
        find_checkpoint("", tmp_path / "odd.safetensors")
