"""Weights of any model from a file, without ever unpickling what a user hands over."""

import warnings
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from prism.model.memory import DERIVED

TAGS = ("imagenette", "scenes")  # of the weights that the package carries, the default first
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def load_weights(model: nn.Module, path: Path, but_head: bool = False) -> None:
    """Load a safetensors file, or a torch file that holds tensors and nothing else, into the model.

    With `but_head`, a classifier of another number of classes is left as the model has it.
    """
    weights = read_weights(path)
    known = model.state_dict()
    for name, value in weights.items():
        if name in known and known[name].is_floating_point() and value.dtype not in FLOATS:
            raise ValueError(f"{path} holds {str(value.dtype).removeprefix('torch.')} instead of weights, in {name!r}")
    as_loaded = {name: value.to(known[name].dtype) if name in known else value for name, value in weights.items()}
    if spoilt := next((name for name, value in as_loaded.items() if not value.isfinite().all()), None):
        raise ValueError(f"{path} holds a weight that is not a finite number, in {spoilt!r}")
    if but_head:
        head = str(getattr(model, "default_cfg", {}).get("classifier", "head"))
        for name, own in known.items():
            if name.startswith(head) and name in weights and weights[name].shape != own.shape:
                weights[name] = own
    try:
        model.load_state_dict(weights)
    except (ValueError, RuntimeError) as error:
        sentence = " ".join(str(error).split())  # torch lists mismatches over many lines
        raise ValueError(f"{path} does not fit: {sentence[:300]}") from None


def shipped(name: str) -> Path | None:
    """The file of weights that this package carries for a model, if it does; timm's tag tells one from others."""
    tagged = name if "." in name else f"{name}.{TAGS[0]}"
    path = Path(str(files("prism") / "weights" / f"{tagged}.safetensors"))
    return path if path.is_file() else None


def read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except Exception as error:  # an unknown type of numbers is a KeyError
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
    try:
        with warnings.catch_warnings(action="ignore"):  # of a foreign pickle, which is refused anyway
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is something else can fail anywhere in the reader
        reason = (str(error) or type(error).__name__).splitlines()[0]
        if "eights" in reason:  # torch goes on to say how to load it all the same
            reason = "it holds more than tensors, which is not loaded for safety"
        raise ValueError(f"{path} is not a file of weights: {reason}") from None
    for key in ("state_dict", "model"):  # how training scripts wrap it
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and is_plain(found[name]) for name in found):
        raise ValueError(f"{path} holds something other than named weights")
    return dict(found)


def is_plain(value: object) -> bool:
    """A tensor whose numbers are all there: neither without storage, nor quantised, nor sparse, nor one repeated."""
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    if value.is_meta or value.is_quantized or value.is_nested:
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()


def halved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What inference needs, in float16 but for the codes' counts; `Codebook` restores its sums from the two."""
    found = {
        name: value.half() if value.dtype == torch.float32 and not name.endswith("codebook.counts") else value
        for name, value in weights.items()
        if not name.endswith(DERIVED)
    }
    if spoilt := next((name for name, value in found.items() if not value.isfinite().all()), None):
        raise ValueError(f"a weight is not finite, or beyond what float16 holds, in {spoilt!r}")
    return found
