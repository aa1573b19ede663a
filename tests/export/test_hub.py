"""A folder for timm and the Hugging Face Hub: loads to the same network, says what it is, is uploaded whole."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file

from prism.cli import main
from prism.export.hub import push
from prism.model.creation import find_checkpoint, open_model
from prism.model.weights import shipped


@pytest.mark.parametrize(
    ("name", "known", "hidden"),
    [("prism_nano", "parachute", "nothing"), ("pvt_v2_b0.scenes", "triangle", "scattered")],
)
def test_timm_loads_the_shipped_weights_from_a_folder(name: str, known: str, hidden: str, tmp_path: Path):
    file = shipped(name)
    assert file is not None
    main(["export", str(file), str(tmp_path / "hub"), "--to", "hub"])
    loaded = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        assert loaded(images).equal(open_model(find_checkpoint("", file))(images))
    assert loaded.pretrained_cfg["input_size"] == [3, 112, 112]
    card = (tmp_path / "hub" / "README.md").read_text()
    for said in ("license: apache-2.0", known, f"Hidden in training: {hidden}", "10 classes"):
        assert said in card


def test_arguments_of_the_network_travel(tmp_path: Path):
    """Also where the package carries weights of the same name, which were trained with others."""
    arguments: dict[str, Any] = dict(slots=[4, 4, 4, 4], codes=16, max_steps=2)
    network = timm.create_model("prism_nano", num_classes=3, **arguments)
    said = {"version": "1", "model": '"prism_nano"', "network": json.dumps(arguments), "classes": '["a", "b", "c"]'}
    save_file(network.state_dict(), tmp_path / "own.safetensors", said)
    main(["export", str(tmp_path / "own.safetensors"), str(tmp_path / "hub"), "--to", "hub", "--steps", "1,2,1,2"])
    loaded = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True)
    assert loaded.fixed_steps == (1, 2, 1, 2)
    assert loaded.max_steps == 2
    assert loaded.num_classes == 3


def test_push_uploads_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    sent = {}

    class Api:
        def __init__(self, **_: Any):
            pass

        def create_repo(self, repo_id: str, **_: Any) -> Any:
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, repo_id: str, folder_path: Path, **_: Any) -> None:
            sent[repo_id] = {file.name for file in Path(folder_path).iterdir()}

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    main(["export", str(shipped("prism_nano")), str(tmp_path / "hub"), "--to", "hub", "--push", "someone/prism"])
    assert sent == {"someone/prism": {"config.json", "model.safetensors", "README.md"}}
    assert "someone/prism" in capsys.readouterr().out


@pytest.mark.parametrize("error", [RuntimeError("name not known"), OSError("no route"), KeyError("token")])
def test_a_hub_that_cannot_be_reached_is_one_sentence(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda **_: (_ for _ in ()).throw(error))
    with pytest.raises(ValueError, match=r"^could not upload to someone/prism: .*(not known|no route|token)"):
        push(tmp_path, "someone/prism")
