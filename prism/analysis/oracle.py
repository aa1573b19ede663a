"""What a perfect memory would be worth: an occluded image goes on with the slots of the clean one.

B images, K slots, D channels. The keys and values of a slot stand beside each other: (B, K, 2D).
"""

from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from prism.analysis.variants import switched
from prism.model.backbone import Prism
from prism.model.halting import Refined, StepRecord, applications, halting_weights
from prism.model.memory import SlotMemory
from prism.model.refinement import Hoisted, RefinementStep, State, Watch

Memory = Callable[[Tensor, Tensor], Tensor]  # grouped and restored slots -> those that a step goes on with


def own_memory(_: Tensor, restored: Tensor) -> Tensor:
    """The network's."""
    return restored


def no_memory(grouped: Tensor, _: Tensor) -> Tensor:
    """Slots go on as they were grouped."""
    return grouped


class Slots(NamedTuple):
    """Of one stage at one step."""

    grouped: Tensor  # (B, K, 2D), normalised, as the memory is given them
    restored: Tensor  # (B, K, 2D), as the memory returns them


def around_memory(memory: SlotMemory, given: tuple[Any, ...], got: tuple[Any, ...]) -> Slots:
    """From what the memory's `forward` was given and gave."""
    return Slots(torch.cat([memory.where_norm(given[0]), memory.what_norm(given[1])], -1), torch.cat(got[:2], -1))


def slots_of(network: Prism, images: Tensor, memory: Memory = own_memory) -> list[list[Slots]]:
    """Of every stage and every step: all images take all steps, so that row i is always image i."""
    seen: list[Slots] = []

    def watch(grouped: Tensor, restored: Tensor) -> Tensor:
        seen.append(Slots(grouped, restored))
        return memory(grouped, restored)

    logits_with(network, images, watch)
    in_order = iter(seen)
    return [list(islice(in_order, steps)) for steps in network.fixed_steps or [network.max_steps] * len(network.stages)]


@torch.inference_mode()
def logits_with(network: Prism, images: Tensor, memory: Memory) -> Tensor:
    """The network's answers with another memory in the place of its own; its halting unit decides as ever."""

    def replace(module: nn.Module, given: tuple[Any, ...], got: tuple[Any, ...]) -> tuple[Any, ...]:
        assert isinstance(module, SlotMemory)
        where, what = memory(*around_memory(module, given, got)).chunk(2, dim=-1)
        return where, what, got[2]

    together = switched(network)  # a copy, which takes its hooks with it
    stages: list[Any] = list(together.stages)
    for stage in stages:
        stage.step.memory.register_forward_hook(replace)
        stage.refine = _refine_together
    return together.forward_traced(images, slot_maps=False).logits  # traced, so that no batch is divided


def _refine_together(
    step: RefinementStep, unit: nn.Module, state: State, hoisted: Hoisted, max_steps: int, watch: Watch, _: bool
) -> Refined:
    """What `refine_until_halted` gives, but nobody leaves the batch: steps after an image's last have weight 0."""
    taken = [refinement for _, refinement in applications(step, state, hoisted, max_steps, watch)]
    weights = halting_weights(torch.stack([unit(refinement.tokens) for refinement in taken], dim=1))[0].unbind(1)
    mixture = sum(
        w[:, None, None].to(refinement.tokens.dtype) * refinement.tokens
        for w, refinement in zip(weights, taken, strict=True)
    )
    rows = torch.arange(len(state.tokens), device=state.tokens.device)
    records = [StepRecord(rows, w, r.shares, r.recall) for w, r in zip(weights, taken, strict=True)]
    return Refined(torch.as_tensor(mixture), records)
