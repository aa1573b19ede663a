"""Adaptive halting (paper, section 3.4 and appendix A1.3): repeat until the accumulated probability reaches 1.

B images, N tokens, D channels; b of the B images are still running.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from prism.model.attention import at_least_float32
from prism.model.compilation import batch_will_change, never_compile, run_in_python
from prism.model.memory import Recall
from prism.model.refinement import Hoisted, Refinement, RefinementStep, State, Watch

EPSILON = 0.01  # so that a step with a probability just short of 1 can halt


class Halt(NamedTuple):
    weight: Tensor  # (b,), p-hat of this step
    halted: Tensor  # (b,), whether this step is the image's last
    total: Tensor  # (b,), probability spent so far


def decide(probability: Tensor, total: Tensor, last: bool | Tensor, epsilon: float = EPSILON) -> Halt:
    """One step's decision. The step that reaches 1 - epsilon, or the last one allowed, takes the remainder R."""
    reached = total + probability
    halted = (reached >= 1 - epsilon) | last
    return Halt(torch.where(halted, 1 - total, probability), halted, reached)


halt = never_compile(decide)


def halting_weights(probabilities: Tensor, epsilon: float = EPSILON) -> tuple[Tensor, Tensor]:
    """Weights p-hat (B, T), which sum to 1, and steps T (B,), from the probabilities p (B, T) of every step."""
    probabilities = at_least_float32(probabilities)
    most = probabilities.shape[1]
    total = torch.zeros_like(probabilities[:, 0])
    running = torch.ones_like(total, dtype=torch.bool)
    steps = torch.zeros_like(total, dtype=torch.long)
    weights = []
    for t in range(most):
        decision = halt(probabilities[:, t], total, last=t == most - 1, epsilon=epsilon)
        weights.append(decision.weight.where(running, 0))
        steps += running
        running, total = running & ~decision.halted, decision.total
    return torch.stack(weights, dim=1), steps


def expected_start(max_steps: int) -> float:
    """The probability at which about T_max / 2 steps are taken; short of 1, which is out of a sigmoid's reach."""
    return min(2 / max_steps, 2 / 3)


class HaltingUnit(nn.Module):
    """p^t = sigmoid(FC(mean of the tokens)): one probability for the whole image."""

    def __init__(self, dim: int, start: float):
        super().__init__()
        self.start = start  # the probability that training starts from, of every step of every image
        self.fc = nn.Linear(dim, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.fc.weight)  # every image starts alike
        nn.init.constant_(self.fc.bias, math.log(self.start / (1 - self.start)))

    def forward(self, tokens: Tensor) -> Tensor:
        return at_least_float32(self.fc(tokens.mean(dim=1)).squeeze(-1)).sigmoid()


class StepRecord(NamedTuple):
    """One step, for the images that took it."""

    rows: Tensor  # (b,), which images
    weight: Tensor  # (b,), p-hat
    shares: Tensor | None  # (b, K, N)
    recall: Recall


class Refined(NamedTuple):
    tokens: Tensor  # (B, N, D), x-hat
    records: list[StepRecord]  # empty where nobody asks: they would keep the memory of every step alive


Loop = Callable[[RefinementStep, nn.Module, State, Hoisted, int, Watch, bool], Refined]  # of a stage over its steps


class Application(NamedTuple):
    """One application of Phi."""

    before: Tensor  # (B, N, D), x^t
    refinement: Refinement


def applications(
    step: RefinementStep, state: State, hoisted: Hoisted, steps: int, watch: Watch, save_memory: bool = False
) -> Iterator[Application]:
    """Phi `steps` times over, on every image; slots move on only where a step follows."""
    for t in range(1, steps + 1):
        refinement = _apply(step, state, hoisted, watch, save_memory)
        yield Application(state.tokens, refinement)
        if t < steps:
            state = state._replace(tokens=refinement.tokens, slots=step.next_slots(state.slots, refinement.where))


def refine_fixed(
    step: RefinementStep, state: State, hoisted: Hoisted, steps: int, watch: Watch, save_memory: bool
) -> Refined:
    """Exactly `steps` steps for every image; the last state is the result."""
    tokens = state.tokens
    rows = torch.arange(tokens.shape[0], device=tokens.device)  # len() would fix the batch of an exported graph
    records = []
    applied = applications(step, state, hoisted, steps, watch, save_memory)
    for t, (_, refinement) in enumerate(applied, start=1):
        tokens = refinement.tokens
        if watch.losses or step.training:
            weight = torch.full_like(rows, t == steps, dtype=torch.float32)
            records.append(StepRecord(rows, weight, refinement.shares, refinement.recall))
    return Refined(tokens, records)


@run_in_python
def refine_until_halted(
    step: RefinementStep,
    unit: nn.Module,
    state: State,
    hoisted: Hoisted,
    max_steps: int,
    watch: Watch,
    save_memory: bool,
    halt: Callable[[Tensor, Tensor, bool], Halt] = halt,
) -> Refined:
    """ACT in the paper. An image that halts leaves the batch: the steps after cost nothing and touch nothing.

    Hence a loop of its own: what `applications` gives next would be of all images.
    """
    tokens = state.tokens
    batch_will_change(*(part for part in state if part is not None))
    rows = torch.arange(len(tokens), device=tokens.device)
    total = at_least_float32(tokens.new_zeros(len(tokens)))
    mixture = torch.zeros_like(tokens)  # sum of p-hat^t x^t of the images still running
    finished, records = [], []
    for t in range(1, max_steps + 1):
        (tokens, where, shares, recall), probability = _advance(step, unit, state, hoisted, watch, save_memory)
        decision = halt(probability, total, t == max_steps)
        total = decision.total
        weight = decision.weight[:, None, None].to(tokens.dtype)
        mixture = torch.addcmul(mixture, weight, tokens)
        if watch.losses or step.training:
            records.append(StepRecord(rows, decision.weight, shares, recall))
        state = state._replace(tokens=tokens)
        # how many go on is all that Python must know of a step: the only time it waits for the device
        running = 0 if t == max_steps else len(rows) - int(decision.halted.sum())
        if running < len(rows):
            order = decision.halted.argsort(stable=True)
            going_on, halted = order[:running], order[running:]
            finished.append((rows[halted], mixture[halted] if running else mixture))
            if not running:
                break
            rows, total, mixture = rows[going_on], total[going_on], mixture[going_on]
            state, where = state.of(going_on), where[going_on]
        state = state._replace(slots=step.next_slots(state.slots, where))
    return Refined(_in_order(finished), records)


@never_compile
def _in_order(finished: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The mixtures of all images, back in the order of the batch."""
    if len(finished) == 1:
        return finished[0][1]
    order = torch.cat([rows for rows, _ in finished]).argsort()
    return torch.cat([mixture for _, mixture in finished])[order]


def _advance(
    step: RefinementStep, unit: nn.Module, state: State, hoisted: Hoisted, watch: Watch, save_memory: bool
) -> tuple[Refinement, Tensor]:
    """A step and the probability of halting after it: one graph when compiled."""
    refinement = _apply(step, state, hoisted, watch, save_memory)
    return refinement, unit(refinement.tokens)


def _apply(step: RefinementStep, state: State, hoisted: Hoisted, watch: Watch, save_memory: bool) -> Refinement:
    if save_memory:
        return checkpoint(step, state, hoisted, watch, use_reentrant=False)  # pyright: ignore
    return step(state, hoisted, watch)
