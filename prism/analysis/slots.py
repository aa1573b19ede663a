"""Which slot wins which part of an image, and what the memory recalls for it, from the trace of a stage.

T steps, K slots, (h, w) positions of a stage's grid. Functions of a trace are of its first image.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prism.model.stage import StageTrace


class Recalled(NamedTuple):
    """A prototype that the memory found for a slot in the last step."""

    slot: int
    code: int
    share: float  # of the image that the slot won


def winners(stage: StageTrace) -> list[np.ndarray]:
    """The slot that won most of each position (h, w), step by step."""
    return [_maps(stage)[step].argmax(0).cpu().numpy() for step in range(int(stage.steps[0]))]


def areas(stage: StageTrace) -> Tensor:
    """The share of the image that each slot won in the last step, (K,); they sum to 1."""
    return _maps(stage)[int(stage.steps[0]) - 1].mean((-2, -1))


def effective_number(areas: Tensor) -> float:
    """How many slots are in use: exp of the entropy of their areas, from 1 (one has all) to K (all the same)."""
    return float(torch.special.entr(areas).sum().exp())


def holding(slot_maps: Tensor) -> Tensor:
    """Slots that somewhere won more than an even share, 1 / K: (..., K, h, w) -> (..., K) of bool. Others are empty."""
    return slot_maps.amax((-2, -1)) > 1 / slot_maps.shape[-3]


def recalled(stage: StageTrace) -> list[Recalled] | None:
    """Prototypes of the slots that hold something, largest slot first; None if the memory was not asked."""
    if stage.codes is None:
        return None
    last = int(stage.steps[0]) - 1
    maps, codes, share = _maps(stage)[last], stage.codes[0, last].tolist(), areas(stage).tolist()
    held = holding(maps).nonzero().squeeze(1).tolist()
    return sorted((Recalled(slot, codes[slot], share[slot]) for slot in held), key=lambda each: -each.share)


def summary(number: int, stage: StageTrace) -> dict[str, Any]:
    """A row of a table: what the stage with this number did."""
    steps, maps = int(stage.steps[0]), _maps(stage)
    return {
        "stage": number,
        "grid": "x".join(map(str, maps.shape[-2:])),
        "slots": maps.shape[1],
        "steps": steps,
        "weights": " ".join(f"{weight:.2f}" for weight in stage.weights[0, :steps]),
        "effective slots": effective_number(areas(stage)),
        "codes recalled": len(stage.codes[0, :steps].unique()) if stage.codes is not None else None,
    }


def _maps(stage: StageTrace) -> Tensor:
    """(T, K, h, w)."""
    assert stage.slot_maps is not None, "traced without slot maps"
    return stage.slot_maps[0]
