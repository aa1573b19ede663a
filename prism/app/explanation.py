"""An image and what is hidden of it -> all that the page shows, as numbers.

T steps, K slots, (h, w) positions of a stage's grid, (S, S) pixels of the image.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prism.analysis.pairs import Pair
from prism.analysis.slots import Recalled, recalled
from prism.analysis.variants import switched
from prism.app.networks import Players
from prism.data.preprocessing import normalise
from prism.model.backbone import Prism, Traced
from prism.model.stage import StageTrace

CHOICES = 3  # classes that an answer names
LIKELY = 0.5  # a first choice below is no answer


class Choice(NamedTuple):
    name: str
    probability: float


class Answer(NamedTuple):
    """What a network says to an image, likeliest first, and what that cost."""

    network: str
    choices: list[Choice]
    macs: float
    steps: list[int] | None = None  # by stage; None of a baseline, which takes the same path for every image

    @property
    def sure(self) -> bool:
        return self.choices[0].probability >= LIKELY


class Reading(NamedTuple):
    """One column of the comparison: how the image was shown, and the answers to it."""

    title: str
    answers: list[Answer]  # PRISM's first


class StageResult(NamedTuple):
    whole: np.ndarray  # (T, K, h, w): the share of each position that each slot won, step by step
    hidden: np.ndarray
    recalled: list[Recalled] | None  # of the hidden image, largest slot first; None without a memory of prototypes


class Explanation(NamedTuple):
    pair: Pair
    readings: list[Reading]  # whole, hidden, hidden without memory, hidden with one step
    stages: list[StageResult]


@torch.inference_mode()
def explain(players: Players, pair: Pair) -> Explanation:
    """Everything about one image."""
    ours, other = players.ours, players.baseline
    images = torch.stack([pair.clean, pair.occluded])
    seen = normalise(images, ours.mean, ours.std)
    both = players.network.forward_traced(seen)  # an image's answer does not depend on its batch-mates
    forgetful = twin(players.network, memory="off").forward_traced(seen[1:], slot_maps=False)
    brief = twin(players.network, fixed_steps=1).forward_traced(seen[1:], slot_maps=False)

    def answer(found: Traced, place: int) -> Answer:
        steps = [int(stage.steps[place]) for stage in found.trace.stages]
        return Answer(ours.name, _likeliest(found.logits[place], players.titles), players.cost.macs(steps), steps)

    answers = [[answer(both, 0)], [answer(both, 1)], [answer(forgetful, 0)], [answer(brief, 0)]]
    if other is not None:
        for own, logits in zip(answers[:2], other.model(normalise(images, other.mean, other.std)), strict=True):
            own.append(Answer(other.name, _likeliest(logits, players.titles), players.baseline_macs))
    titles = ("whole image", "occluded", "occluded, memory off", "occluded, one step")
    return Explanation(
        pair,
        [Reading(*each) for each in zip(titles, answers, strict=True)],
        [_result(stage) for stage in both.trace.stages],
    )


@lru_cache(maxsize=64)
def twin(network: Prism, **switches: Any) -> Prism:
    """The network under other switches. It shares the weights and nothing else, so visitors need not take turns."""
    return switched(network, **switches)


def _likeliest(logits: Tensor, classes: list[str]) -> list[Choice]:
    probabilities, indices = logits.float().softmax(0).topk(min(CHOICES, len(logits)))
    return [Choice(classes[index], p) for p, index in zip(probabilities.tolist(), indices.tolist(), strict=True)]


def _result(both: StageTrace) -> StageResult:
    """Of a trace of the whole image and the hidden one; the shares are of the steps that were taken."""
    maps, steps = both.slot_maps, both.steps.tolist()
    assert maps is not None
    parts: list[Any] = [part if part is None else part[1:] for part in both]
    return StageResult(maps[0, : steps[0]].numpy(), maps[1, : steps[1]].numpy(), recalled(StageTrace(*parts)))
