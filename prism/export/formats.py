"""Exported files: each format is written, checked against PyTorch, and only then put in its place."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.export import ExportedProgram

from prism.export.engines import Engine, open_engine
from prism.export.exportable import Exportable, any_size, program, reference, sizes_to_check
from prism.model.metadata import Metadata

CLOSE = 1e-4  # largest difference from PyTorch's answer
BATCHES = (1, 5)


class Format(NamedTuple):
    suffix: str
    engine: str  # by which the file is checked
    write: Callable[[ExportedProgram, Sequence[str], Path, Metadata], None]


class Written(NamedTuple):
    difference: float  # largest, from PyTorch's answers
    any_size: bool


def write_onnx(traced: ExportedProgram, names: Sequence[str], path: Path, metadata: Metadata) -> None:
    import onnxscript  # noqa: F401  torch needs it, and would say so at length

    made = torch.onnx.export(
        traced, input_names=["images"], output_names=list(names), dynamo=True, verbose=False, external_data=False
    )
    assert made is not None
    _keep_weights_in_loops(made.model.graph)
    made.model.metadata_props.update(metadata.header())
    made.save(path, external_data=False)


def _keep_weights_in_loops(graph: Any) -> None:
    """Move weights that the body of one loop alone uses into it, where onnxruntime lays them out for its convolutions.

    It does so for a graph's own weights only; a depthwise convolution then takes a quarter of the time. The graph is
    onnx_ir's.
    """
    for name, weight in list(graph.initializers.items()):
        users = {use.node.graph for use in weight.uses()}
        if len(users) == 1 and (body := users.pop()) is not None and body is not graph:
            del graph.initializers[name]
            body.register_initializer(weight)


def write_openvino(traced: ExportedProgram, names: Sequence[str], path: Path, metadata: Metadata) -> None:
    """By way of ONNX, whose loop OpenVINO knows."""
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        write_onnx(traced, names, Path(folder) / "network.onnx", metadata)
        model = openvino.convert_model(Path(folder) / "network.onnx")
        for key, text in metadata.header().items():
            model.set_rt_info(text, ["prism", key])
        openvino.save_model(model, path, compress_to_fp16=False)


def write_program(traced: ExportedProgram, names: Sequence[str], path: Path, metadata: Metadata) -> None:
    texts = {f"{key}.json": text for key, text in metadata.header().items()}
    torch.export.save(traced, path, extra_files=texts | {"names.json": ",".join(names)})


FORMATS = {
    "onnx": Format(".onnx", "onnxruntime", write_onnx),
    "openvino": Format(".xml", "openvino", write_openvino),
    "torch": Format(".pt2", "program", write_program),
}


def check_place(out: Path, to: str) -> None:
    """Before the long work."""
    suffix = FORMATS[to].suffix
    if out.is_dir():
        raise ValueError(f"{out} is a folder: --to {to} writes a file that ends in {suffix}")
    if out.suffix != suffix:
        raise ValueError(f"--to {to} writes a file that ends in {suffix}, got {out}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent):
        pass


def write(network: nn.Module, out: Path, to: str, metadata: Metadata, size: int, features: bool = False) -> Written:
    """Export the network to `out`. A file that answers otherwise than the network is not kept."""
    check_place(out, to)
    _, engine, write_file = FORMATS[to]
    exportable = Exportable(network, features)
    traced = program(exportable, size)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        unchecked = Path(folder) / out.name
        write_file(traced, exportable.names, unchecked, metadata)
        sizes = sizes_to_check(exportable, traced, size)
        found = Written(difference(network, open_engine(engine, unchecked), sizes, features), any_size(traced))
        if not found.difference <= CLOSE:
            raise ValueError(f"{out} would differ from PyTorch by {found.difference:.2g}, over {CLOSE:g}: not written")
        for file in Path(folder).iterdir():  # OpenVINO's are two
            shutil.move(file, out.parent / file.name)
    return found


def difference(network: nn.Module, run: Engine, sizes: Sequence[tuple[int, int]], features: bool) -> float:
    """The largest difference between an engine's answers and the network's, on noise; infinite if steps differ."""
    generator, largest = torch.Generator().manual_seed(0), 0.0
    for (height, width), batch in itertools.product(sizes, BATCHES):
        images = torch.randn(batch, 3, height, width, generator=generator)
        found, wanted = run(images), reference(network, images, features)
        for (name, own), right in zip(found.items(), wanted, strict=False):  # a segmenter's steps are not compared
            if name == "steps" and not own.equal(right):
                return float("inf")
            largest = max(largest, float((own - right).abs().max()))
    return largest
