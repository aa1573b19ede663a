"""What slots, memory and FFN contribute to a stage's tokens, step by step.

B images, N tokens, K slots, D channels.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from prism.analysis.oracle import around_memory
from prism.model.refinement import RefinementStep, Watch
from prism.model.stage import Features, Stage


def slot_entropy(shares: Tensor) -> float:
    """How undecided slots are over a token: 0 if one takes it all, 1 if all K take the same. (B, K, N) shares."""
    return float(torch.special.entr(shares).sum(1).mean()) / math.log(shares.shape[1])


def relative_size(part: Tensor, whole: Tensor) -> float:
    """Root mean square of one over that of the other."""
    return float((part.square().mean() / whole.square().mean()).sqrt())


def explained_share(wanted: Tensor, found: Tensor) -> float:
    """1 - (squared error) / (variance over slots and images): 1 is perfect, 0 no better than the mean."""
    around_mean = wanted - wanted.mean((0, 1))
    return float(1 - (wanted - found).square().sum() / around_mean.square().sum())


def contributions(stage: Stage, given: Features) -> Iterator[dict[str, float]]:
    """The figures of each of `max_steps` steps, with the halting unit ignored."""
    restores = stage.step.memory.mode != "off"
    with _inside(stage.step) as seen:
        for before, (after, _, shares, recall), _ in stage.steps(given, Watch(maps=True)):
            assert shares is not None
            yield {
                "returned": relative_size(seen["after slots"] - before, before),
                "mixed": relative_size(after - seen["after slots"], before),
                "entropy": slot_entropy(shares),
                "explained": explained_share(seen["grouped"], seen["restored"]) if restores else math.nan,
                "codes": len(recall.codes.unique()) if recall.codes is not None else math.nan,
            }


@contextmanager
def _inside(step: RefinementStep) -> Iterator[dict[str, Tensor]]:
    """What enters the FFN, and what enters and leaves the memory, in the last application of the step."""
    seen: dict[str, Tensor] = {}
    memory = step.memory

    def see_ffn(_: Any, given: tuple[Any, ...]) -> None:
        seen["after slots"] = given[0]

    def see_memory(_: Any, given: tuple[Any, ...], got: tuple[Any, ...]) -> None:
        seen["grouped"], seen["restored"] = around_memory(memory, given, got)

    handles = [step.token_ffn.register_forward_pre_hook(see_ffn), memory.register_forward_hook(see_memory)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
