"""One way to run a network, whoever runs it: images in, answers by name out."""

import os
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prism.model.metadata import Metadata, metadata_of

SHAPES_KEPT = 4  # of images, for which OpenVINO has compiled a network

Answers = dict[str, Tensor]


class Engine:
    """Calls `run` with images (B, 3, H, W), whose answers have `names`; `metadata` is what the file says of itself."""

    def __init__(self, run: Callable[[Tensor], Answers], names: Sequence[str], metadata: Metadata | None = None):
        self._run, self.names, self.metadata = run, list(names), metadata or Metadata()

    def __call__(self, images: Tensor) -> Answers:
        try:
            return self._run(images)
        except Exception as error:  # each engine refuses in its own way what it cannot compute
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"cannot run images of {tuple(images.shape)}: {reason}") from None


def open_engine(engine: str, network: Path | nn.Module, threads: int | None = None) -> Engine:
    """A file or a network, ready to be run by one of ENGINES, on the CPU with so many threads (all by default)."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; choose from {', '.join(ENGINES)}")
    suffixes, start = ENGINES[engine]
    threads = threads or os.cpu_count() or 1
    if isinstance(network, nn.Module):
        return start(network, threads) if not suffixes else _exported(engine, network, threads)
    if not suffixes:
        raise ValueError(f"{engine} runs networks, not files: {network}")
    if not network.is_file():
        raise FileNotFoundError(f"there is no file {network}")
    if network.suffix not in suffixes:
        raise ValueError(f"{engine} runs files that end in {' or '.join(suffixes)}, got {network}")
    try:
        return start(network, threads)
    except (ModuleNotFoundError, OSError):
        raise
    except Exception as error:  # each engine has errors of its own for a damaged file
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{engine} cannot read {network}: {reason}") from None


def _exported(engine: str, network: nn.Module, threads: int) -> Engine:
    """By way of a file that is gone once it is loaded."""
    from prism.export.formats import write

    to = {"onnxruntime": "onnx", "openvino": "openvino", "program": "torch"}[engine]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"network{ENGINES[engine][0][0]}"
        write(network, file, to, Metadata(), 64)
        return open_engine(engine, file, threads)


def _eager(network: nn.Module, threads: int) -> Engine:
    return Engine(_in_torch(network, threads), ["logits"])


def _compiled(network: nn.Module, threads: int) -> Engine:
    return Engine(_in_torch(torch.compile(network), threads), ["logits"])


def _in_torch(network: Callable[..., Any], threads: int) -> Callable[[Tensor], Answers]:
    torch.set_num_threads(threads)

    @torch.inference_mode()
    def run(images: Tensor) -> Answers:
        return {"logits": network(images)}

    return run


def _onnxruntime(file: Path, threads: int) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what goes wrong is said once, by us
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    [given] = [own.name for own in session.get_inputs()]

    def run(images: Tensor) -> Answers:
        return _named(names, session.run(names, {given: images.numpy()}))

    return Engine(run, names, metadata_of(session.get_modelmeta().custom_metadata_map, file))


def _openvino(file: Path, threads: int) -> Engine:
    import openvino

    core = openvino.Core()
    model = core.read_model(file)
    # not the processor's bfloat16, which is the default where there is one: steps and codes are decided by little
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    names = [output.get_any_name() for output in model.outputs]
    [_] = model.inputs

    @lru_cache(maxsize=SHAPES_KEPT)
    def request_for(shape: tuple[int, ...]) -> Any:
        """Compiled for images of this shape: a second's work, and PRISM is 1.4 times as fast as where any may come."""
        fixed = model.clone()
        fixed.reshape(list(shape))
        return core.compile_model(fixed, "CPU", settings).create_infer_request()

    def run(images: Tensor) -> Answers:
        found = request_for(tuple(images.shape)).infer([images.numpy()])
        return _named(names, [found[place].copy() for place in range(len(names))])

    return Engine(run, names, metadata_of(_kept_by_openvino(model, file), file))


def _kept_by_openvino(model: Any, file: Path) -> dict[str, str]:
    if file.suffix == ".onnx":
        import onnx

        return {entry.key: entry.value for entry in onnx.load(file, load_external_data=False).metadata_props}
    places = {key: ["prism", key] for key in Metadata().header()}
    return {key: str(model.get_rt_info(place).value) for key, place in places.items() if model.has_rt_info(place)}


def _program(file: Path, threads: int) -> Engine:
    """A `torch.export` program, for files of one's own: torch's reader may run what a stranger's holds."""
    torch.set_num_threads(threads)
    texts = {f"{key}.json": "" for key in Metadata().header()} | {"names.json": ""}
    network: Any = torch.export.load(file, extra_files=texts).module()
    names = str(texts.pop("names.json")).split(",")

    @torch.inference_mode()
    def run(images: Tensor) -> Answers:
        return dict(zip(names, network(images), strict=True))

    return Engine(
        run, names, metadata_of({key.removesuffix(".json"): text for key, text in texts.items() if text}, file)
    )


def _named(names: Sequence[str], values: Sequence[Any]) -> Answers:
    return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


ENGINES: dict[str, tuple[tuple[str, ...], Callable[[Any, int], Engine]]] = {
    "eager": ((), _eager),
    "compile": ((), _compiled),
    "onnxruntime": ((".onnx",), _onnxruntime),
    "openvino": ((".xml", ".onnx"), _openvino),
    "program": ((".pt2",), _program),
}
