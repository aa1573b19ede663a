"""Checkpoints: complete, written whole or not at all, and read without running what they hold."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from prism.reporting.files import write_whole


def save(state: dict[str, Any], folder: Path, step: int, keep: int) -> Path:
    """Write the state after `step`, then drop all but the newest `keep` checkpoints."""
    path = folder / f"step-{step:08d}.pt"
    write_whole(path, lambda unfinished: torch.save(state, unfinished))
    for old in saved(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def saved(folder: Path) -> list[Path]:
    """Checkpoints in the order of their steps."""
    return sorted(path for path in folder.glob("step-*.pt") if re.fullmatch(r"step-\d{8,}\.pt", path.name))


def read(path: Path) -> dict[str, Any]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise ValueError(f"the checkpoint {path} cannot be read: {type(error).__name__}") from None


def export(weights: Mapping[str, Tensor], path: Path, header: Mapping[str, str]) -> None:
    """Weights for use, with their metadata as the header."""
    whole = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    write_whole(path, lambda unfinished: save_file(whole, unfinished, dict(header)))
