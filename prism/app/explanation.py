"""An image, what is hidden of it, and switches -> all that the page shows, as numbers.

(h, w) positions of a stage's grid, (S, S) pixels of the image.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prism.analysis.pairs import Pair, normalise
from prism.analysis.recovery import closeness
from prism.analysis.slots import Recalled, recalled, winners
from prism.analysis.variants import switched
from prism.app.networks import Players
from prism.model.backbone import Prism

CHOICES = 5  # classes that an answer names


class Switches(NamedTuple):
    memory: bool = True  # False passes the slots on as they are
    steps: int | None = None  # in every stage; None lets the halting unit decide


class Choice(NamedTuple):
    name: str
    probability: float


class Answer(NamedTuple):
    """What one network says about the clean image and about what is left of it, likeliest first."""

    name: str
    clean: list[Choice]
    occluded: list[Choice]


class StageResult(NamedTuple):
    clean: list[np.ndarray]  # (h, w), the slot that won each position; one for each step that was taken
    occluded: list[np.ndarray]
    recalled: list[Recalled] | None  # of the occluded image, largest slot first; None if the memory is off


class Explanation(NamedTuple):
    pair: Pair
    answers: list[Answer]
    stages: list[StageResult]
    recovery: list[list[float]] | None  # cosine to the clean image after 1, 2, ... steps, by stage
    max_steps: int


@torch.inference_mode()
def explain(players: Players, pair: Pair, switches: Switches) -> Explanation:
    """Everything about one image. Recovery is of interest only where something is hidden."""
    network = twin(players.network, switches)
    ours, other = players.ours, players.baseline
    clean, occluded = (normalise(image[None], ours.mean, ours.std) for image in (pair.clean, pair.occluded))
    whole, left = network.forward_traced(clean), network.forward_traced(occluded)
    curves = closeness(network, clean, occluded) if pair.hidden.any() else None
    logits = [(ours.name, whole.logits, left.logits)]
    if other is not None:
        seen = [normalise(image[None], other.mean, other.std) for image in (pair.clean, pair.occluded)]
        logits.append((other.name, other.model(seen[0]), other.model(seen[1])))
    return Explanation(
        pair,
        [Answer(name, *(_likeliest(each, players.titles) for each in both)) for name, *both in logits],
        [
            StageResult(winners(a), winners(b), recalled(b))
            for a, b in zip(whole.trace.stages, left.trace.stages, strict=True)
        ],
        [curve[0].tolist() for curve in curves] if curves else None,
        network.max_steps,
    )


@lru_cache(maxsize=64)
def twin(network: Prism, switches: Switches) -> Prism:
    """The network as a visitor wants it. It shares the weights and nothing else, so visitors need not take turns."""
    return switched(network, memory=network.memory if switches.memory else "off", fixed_steps=switches.steps)


def _likeliest(logits: Tensor, classes: list[str]) -> list[Choice]:
    probabilities, indices = logits[0].float().softmax(0).topk(min(CHOICES, logits.shape[1]))
    return [Choice(classes[index], p) for p, index in zip(probabilities.tolist(), indices.tolist(), strict=True)]
