"""Checkpoints: complete, written whole or not at all, and read without running what they hold."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor


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


def export(weights: dict[str, Tensor], path: Path, about: dict[str, str]) -> None:
    """Weights for use, with what they are of in the header."""
    weights = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    write_whole(path, lambda unfinished: save_file(weights, unfinished, about))


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file beside `path`, then put it in place: a reader sees the old file or the new one.

    The new one is on the disk before the old one goes, so neither a kill nor a power cut leaves half of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.partial")
    try:
        write(unfinished)
        _to_disk(unfinished)
        unfinished.replace(path)
        _to_disk(path.parent)
    except Exception as error:  # torch and safetensors report a full disk by errors of their own
        unfinished.unlink(missing_ok=True)
        reason = " ".join(str(error).split())[:200]
        raise OSError(f"{path} could not be written, what was there before is intact: {reason}") from None


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
