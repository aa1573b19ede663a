"""What cannot be exported or run is refused in one sentence, before the long work, and nothing is left behind."""

from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import TensorProto, helper, save
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from prism.cli import main
from prism.export import formats
from prism.model.metadata import Metadata
from prism.model.weights import shipped

NANO, PVT = str(shipped("prism_nano")), str(shipped("pvt_v2_b0.scenes"))
EXPORT = ("export", NANO)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    (place / "folder.onnx").mkdir()
    for name in ("corrupt.onnx", "corrupt.xml", "text.txt"):
        (place / name).write_text("no network")
    shape = [1, 3, "height", "width"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("images", "logits")]
    graph = helper.make_graph([helper.make_node("Relu", ["images"], ["logits"])], "g", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), place / "foreign.onnx")
    detector = {"version": "1", "model": '"prism_nano"', "task": '"detection"', "classes": '["a"]'}
    save_file({"x": torch.zeros(1)}, place / "detector.safetensors", detector)
    return place


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("export", "{place}/none.safetensors", "{out}.onnx", "--to", "onnx"), "there is no checkpoint"),
        ((*EXPORT, "{place}/folder.onnx", "--to", "onnx"), "is a folder: --to onnx writes a file that ends in .onnx"),
        ((*EXPORT, "{out}.txt", "--to", "onnx"), "writes a file that ends in .onnx, got"),
        ((*EXPORT, "{out}.onnx", "--to", "openvino"), "--to openvino writes a file that ends in .xml"),
        ((*EXPORT, "{out}.onnx", "--to", "tflite"), "--to must be one of onnx, openvino, torch, hub, got 'tflite'"),
        ((*EXPORT, "/proc/none/x.onnx", "--to", "onnx"), "/proc/none"),
        ((*EXPORT, "{place}/text.txt", "--to", "hub"), "is a file: --to hub writes a folder"),
        ((*EXPORT, "{out}.onnx", "--to", "onnx", "--steps", "0"), "expected whole numbers from 1 to"),
        ((*EXPORT, "{out}.onnx", "--to", "onnx", "--steps", "99"), "--steps must lie between 1 and 3, got '99'"),
        ((*EXPORT, "{out}.onnx", "--to", "onnx", "--steps", "nan"), "got 'nan'"),
        ((*EXPORT, "{out}.onnx", "--to", "onnx", "--steps", "1,2"), "one number or 4"),
        (("export", PVT, "{out}.onnx", "--to", "onnx", "--steps", "2"), "--steps is only for PRISM"),
        ((*EXPORT, "{out}.safetensors", "--steps", "2"), "--steps needs --to"),
        ((*EXPORT, "{out}", "--to", "hub", "--features"), "--features is only for"),
        ((*EXPORT, "{out}.onnx", "--to", "onnx", "--push", "a/b"), "--push is only for --to hub"),
        (("export", "{place}/detector.safetensors", "{out}.onnx", "--to", "onnx"), "is for detection: --to onnx holds"),
        (("predict", "--engine", "abacus", "{place}/corrupt.onnx", "a.png"), "must be onnx or openvino, got 'abacus'"),
        (("predict", "--engine", "onnx", "{place}/none.onnx", "a.png"), "there is no file"),
        (("predict", "--engine", "onnx", "{place}/corrupt.onnx", "a.png"), "onnxruntime cannot read"),
        (("predict", "--engine", "openvino", "{place}/corrupt.xml", "a.png"), "openvino cannot read"),
        (("predict", "--engine", "onnx", "{place}/corrupt.xml", "a.png"), "runs files that end in .onnx, got"),
        (("predict", "--engine", "onnx", "{place}/foreign.onnx", "a.png"), "prism export did not write it"),
        (("predict", "--engine", "onnx"), "name the exported file, and the images after it"),
        (("predict", "--engine", "onnx", "{place}/foreign.onnx"), "name the images after the exported file"),
        (("predict", "--engine", "onnx", "a.onnx", "--checkpoint", NANO), "leave out --checkpoint"),
    ],
)  # fmt: skip
def test_one_sentence(words: tuple[str, ...], sentence: str, place: Path, tmp_path: Path):
    with pytest.raises(SystemExit) as stopped:
        main([word.format(place=place, out=tmp_path / "out") for word in words])
    message = stopped.value.code
    assert isinstance(message, str)
    assert message.startswith("prism: ")
    assert sentence in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())


def stranger(path: Path, size: int | str, nodes: list[tuple[str, dict[str, Any], str]], classes: str) -> Path:
    """A file that names itself a classifier of these classes; each node makes one output of the images."""
    made = [helper.make_node(kind, ["images"], [name], **how) for kind, how, name in nodes]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, size, size])
    ends = [helper.make_empty_tensor_value_info(name) for *_, name in nodes]
    model = helper.make_model(helper.make_graph(made, "g", [images], ends), ir_version=9,
                              opset_imports=[helper.make_opsetid("", 17)])  # fmt: skip
    said = Metadata(model="stranger", preprocessing={"size": 32}).header() | {"classes": classes}
    helper.set_model_props(model, said)
    save(model, path)
    return path


MEAN = ("ReduceMean", dict(axes=[2, 3], keepdims=0))
THREE = '["a", "b", "c"]'


@pytest.mark.parametrize(
    ("size", "nodes", "classes", "sentence"),
    [
        ("side", [(*MEAN, "logits")], '["a", "b"]', "names 2 classes, but returns 3 logits"),
        (64, [(*MEAN, "logits")], THREE, "cannot run images of (1, 3, 32, 32)"),
        ("side", [("ReduceMean", dict(keepdims=0), "logits")], THREE, "of (), not logits"),
        ("side", [("ReduceMean", dict(axes=[1, 2, 3], keepdims=0), "logits")], THREE, "of (1,), not logits"),
        ("side", [("Identity", {}, "logits")], THREE, "of (1, 3, 32, 32), not logits"),
        ("side", [("Cast", dict(to=TensorProto.STRING), "logits")], THREE, "cannot run images of (1, 3, 32, 32)"),
        ("side", [("SequenceConstruct", {}, "logits")], THREE, "cannot run images of (1, 3, 32, 32)"),
        ("side", [(*MEAN, "logits"), ("ReduceMean", dict(keepdims=0), "steps")], THREE, "returns steps as"),
    ],
)
def test_a_strangers_file_is_not_believed(
    size: int | str, nodes: list[Any], classes: str, sentence: str, tmp_path: Path
):
    Image.new("RGB", (40, 40), "red").save(tmp_path / "a.png")
    honest = stranger(tmp_path / "honest.onnx", "side", [(*MEAN, "logits")], THREE)
    main(["predict", "--engine", "onnx", str(honest), str(tmp_path / "a.png"), "--out", str(tmp_path / "out")])
    file = stranger(tmp_path / "file.onnx", size, nodes, classes)
    with pytest.raises(SystemExit) as stopped:
        main(["predict", "--engine", "onnx", str(file), str(tmp_path / "a.png"), "--out", str(tmp_path / "out")])
    assert sentence in str(stopped.value.code)


def test_a_file_that_answers_otherwise_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formats, "difference", lambda *_: 2e-4)
    monkeypatch.setattr(formats, "open_engine", lambda *_: None)
    written = formats.Format(".pt2", "program", lambda traced, names, path, metadata: path.write_text("wrong"))
    monkeypatch.setitem(formats.FORMATS, "torch", written)
    with pytest.raises(ValueError, match=r"would differ from PyTorch by 0\.0002, over 0\.0001: not written"):
        formats.write(
            nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(2)), tmp_path / "network.pt2", "torch", formats.Metadata(), 32
        )
    assert not list(tmp_path.iterdir())
