"""Exported files answer as PyTorch does, at any size and batch, and say what they are."""

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from PIL import Image
from timm.models.davit import DaVit
from torch import nn

from prism.baselines.biformer import BiFormer
from prism.baselines.debiformer import DeBiFormer
from prism.cli import main
from prism.data.scenes import render_scene
from prism.export.engines import open_engine
from prism.export.exportable import reference
from prism.export.formats import write
from prism.model.backbone import Prism
from prism.model.creation import find_checkpoints, open_model
from prism.model.metadata import Metadata
from prism.model.weights import shipped
from tests.export.small import restless, varied

ENGINES = ("onnxruntime", "openvino")
NANO = str(shipped("prism_nano"))


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped weights as ONNX, by the command."""
    file = tmp_path_factory.mktemp("nano") / "nano.onnx"
    main(["export", NANO, str(file), "--to", "onnx"])
    return file


@pytest.fixture(scope="module")
def by_evidence(tmp_path_factory: pytest.TempPathFactory) -> tuple[Prism, Path]:
    torch.manual_seed(0)
    network, file = restless(), tmp_path_factory.mktemp("evidence") / "network.onnx"
    write(network, file, "onnx", Metadata(model="prism_nano"), 64)
    return network, file


@pytest.mark.parametrize("engine", ENGINES)
def test_shipped_weights_take_the_same_steps_on_scenes(nano: Path, engine: str):
    run = open_engine(engine, nano, threads=1)
    [checkpoint] = find_checkpoints("prism_nano", pretrained=True)
    network = open_model(checkpoint)
    scenes = torch.stack([torch.from_numpy(render_scene(64, seed)) for seed in range(100)])
    images = (scenes.permute(0, 3, 1, 2) / 255 - 0.45) / 0.225
    logits, steps = reference(network, images, features=False)
    found = [run(image[None]) for image in images]
    assert torch.cat([one["steps"] for one in found]).equal(steps)
    assert (torch.cat([one["logits"] for one in found]) - logits).abs().max() <= 1e-4
    assert len(steps.unique(dim=0)) > 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [(32, 32), (96, 64), (75, 130)])
def test_any_size_and_batch(by_evidence: tuple[Prism, Path], engine: str, size: tuple[int, int]):
    network, file = by_evidence
    run = open_engine(engine, file, threads=1)
    for batch in (1, 5):
        images = varied(batch, *size)
        images[..., :16, :24] = 0  # a hole
        logits, steps = reference(network, images, features=False)
        found = run(images)
        assert found["steps"].equal(steps)
        assert (found["logits"] - logits).abs().max() <= 1e-4


@pytest.mark.parametrize("steps", [None, 2])
def test_a_torch_program_is_open_for_any_size_and_batch(steps: int | None, tmp_path: Path):
    """Which its own check shows: batches of 1 and 5, sides that no patch divides."""
    network = restless(widths=(16,), slots=(4,), fixed_steps=steps)
    difference, any_size = write(network, tmp_path / "network.pt2", "torch", Metadata(model="prism_nano"), 64)
    assert any_size
    assert difference <= 1e-6


@pytest.mark.parametrize(("kind", "suffix"), [("torch", ".pt2"), ("onnx", ".onnx")])
def test_windows_of_biformer_are_padded_at_any_size(kind: str, suffix: str, tmp_path: Path):
    network = BiFormer(num_classes=4, widths=(32, 64), depths=(1, 1), windows=3, routed=(2,), last_heads=2).eval()
    difference, any_size = write(network, tmp_path / f"network{suffix}", kind, Metadata(model="any"), 64)
    assert any_size
    assert difference <= 1e-4


def one_size_debiformer() -> DeBiFormer:
    """72 is no multiple of the largest stride."""
    small = dict(widths=(64,), pairs=(1,), windows=(3,), token_routed=(2,), agent_routed=(4,))
    return DeBiFormer(num_classes=4, img_size=72, **small, offset_kernels=(3,), offset_strides=(2,))


def one_size_davit() -> DaVit:
    return DaVit(num_classes=4, depths=(1,), embed_dims=(32,), num_heads=(1,), window_size=3)


@pytest.mark.parametrize("build", [one_size_debiformer, one_size_davit])
def test_what_cannot_be_traced_with_open_sides_is_written_at_one_size(tmp_path: Path, build: Callable[[], nn.Module]):
    file = tmp_path / "network.onnx"
    difference, any_size = write(build().eval(), file, "onnx", Metadata(model="any"), 72)
    assert not any_size
    assert difference <= 1e-4
    with pytest.raises(ValueError, match="64"):
        open_engine("onnxruntime", file, threads=1)(torch.zeros(1, 3, 64, 64))


def test_a_loop_holds_the_weights_of_its_convolutions(by_evidence: tuple[Prism, Path]):
    """Only there does onnxruntime lay them out for its fast kernels."""
    graph = onnx.load(by_evidence[1]).graph
    bodies = [own.g for node in graph.node for own in node.attribute if own.name == "body"]
    assert len(bodies) == 2
    for body in bodies:
        held = {weight.name for weight in body.initializer}
        assert {node.input[1] for node in body.node if node.op_type == "Conv"} <= held
        assert held


@pytest.mark.parametrize("engine", ENGINES)
def test_predict_shows_images_as_the_file_says(nano: Path, engine: str, tmp_path: Path):
    photo = tmp_path / "photo.png"
    Image.fromarray(render_scene(90, 0)).save(photo)
    main(["predict", str(photo), "--out", str(tmp_path / "torch")])
    name = {"onnxruntime": "onnx"}.get(engine, engine)
    main(["predict", "--engine", name, str(nano), str(photo), "--out", str(tmp_path / name)])
    wanted, found = (json.loads((tmp_path / by / "predictions.json").read_text())[0] for by in ("torch", name))
    assert found["steps"] == wanted["steps"]
    for own, right in zip(found["choices"], wanted["choices"], strict=True):
        assert own["class"] == right["class"]
        assert own["probability"] == pytest.approx(right["probability"], abs=1e-4)
