"""Weights of any model from a file, without ever unpickling what a user hands over."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a safetensors file, or a torch file that holds tensors and nothing else, into the model."""
    weights = read_weights(path)
    try:
        model.load_state_dict(weights)
    except (ValueError, RuntimeError) as error:
        sentence = " ".join(str(error).split())  # torch lists mismatches over many lines
        raise ValueError(f"{path} does not fit: {sentence[:300]}") from None


def read_weights(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from None
    try:
        with warnings.catch_warnings(action="ignore"):  # of a foreign pickle, which is refused anyway
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is something else can fail anywhere in the reader
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is not a file of weights: {reason}") from None
    for key in ("state_dict", "model"):  # how training scripts wrap it
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ValueError(f"{path} holds something else than weights by name")
    return dict(found)
