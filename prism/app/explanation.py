"""A picture, what is hidden of it, and switches -> all that the page shows, as numbers.

K slots, T steps, (h, w) positions of a stage's grid, (S, S) pixels of the picture.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prism.app.networks import Players
from prism.model.backbone import Prism
from prism.model.stage import StageTrace
from prism.occlusion.benchmark import Setting, Subject
from prism.occlusion.hiding import hide as hide_pixels
from prism.occlusion.masks import mask_generator
from prism.studies.pairs import Pair, as_seen
from prism.studies.recovery import closeness
from prism.studies.slots import winners
from prism.tasks.classification.predict import CHOICES

TURNS = threading.Lock()


class Switches(NamedTuple):
    memory: bool = True  # False passes the slots on as they are
    steps: int | None = None  # in every stage; None lets the halting unit decide


class Choice(NamedTuple):
    name: str
    probability: float


class Answer(NamedTuple):
    """What one network says to the whole picture and to what is left of it, likeliest first."""

    name: str
    clean: list[Choice]
    occluded: list[Choice]


class Recalled(NamedTuple):
    """A prototype that the memory found for a slot in the last step."""

    slot: int
    code: int
    share: float  # of the picture that the slot won


class StageView(NamedTuple):
    clean: list[np.ndarray]  # (h, w), the slot that won each position; one a step that was taken
    occluded: list[np.ndarray]
    recalled: list[Recalled] | None  # of the occluded picture, largest slot first; None where no memory is asked


class Explanation(NamedTuple):
    pair: Pair
    answers: list[Answer]
    stages: list[StageView]
    recovery: list[list[float]] | None  # cosine to the clean picture after 1, 2, ... steps, by stage
    max_steps: int


def hide(image: Tensor, painted: Tensor, setting: Setting, seed: int, colour: Tensor) -> Pair:
    """The image (3, S, S) whole, and with what was painted or lies under the setting's mask in one colour."""
    generator = mask_generator(0, seed)
    hidden = painted | setting.mask((image.shape[-2], image.shape[-1]), generator)
    return Pair(image, hide_pixels(image, hidden, generator, mean=colour.tolist()), hidden)


@torch.inference_mode()
def explain(players: Players, pair: Pair, switches: Switches) -> Explanation:
    """Everything about one picture. Recovery is of interest only where something is hidden."""
    with switched(players.network, switches):
        clean, occluded = (as_seen(image[None], players.ours) for image in (pair.clean, pair.occluded))
        whole, left = players.network.forward_traced(clean), players.network.forward_traced(occluded)
        curves = closeness(players.network, clean, occluded) if pair.hidden.any() else None
    answers = [_answer(players.ours, players.titles, whole.logits, left.logits)]
    if (other := players.baseline) is not None:
        seen = (other.model(as_seen(image[None], other)) for image in (pair.clean, pair.occluded))
        answers.append(_answer(other, players.titles, *seen))
    return Explanation(
        pair,
        answers,
        [
            StageView(winners(a), winners(b), _recalled(b))
            for a, b in zip(whole.trace.stages, left.trace.stages, strict=True)
        ],
        [curve[0].tolist() for curve in curves] if curves else None,
        players.network.max_steps,
    )


@contextmanager
def switched(network: Prism, switches: Switches) -> Iterator[None]:
    """The network as the visitor wants it. Switches are attributes and visitors share the network: they take turns."""
    with TURNS:
        before = network.memory, network.fixed_steps
        try:
            network.memory = before[0] if switches.memory else "off"
            network.fixed_steps = switches.steps
            yield
        finally:
            network.memory, network.fixed_steps = before


def _answer(subject: Subject, classes: list[str], clean: Tensor, occluded: Tensor) -> Answer:
    return Answer(subject.name, *([*map(Choice, *_top(logits, classes))] for logits in (clean, occluded)))


def _top(logits: Tensor, classes: list[str]) -> tuple[list[str], list[float]]:
    probabilities, indices = logits[0].float().softmax(0).topk(min(CHOICES, logits.shape[1]))
    return [classes[index] for index in indices.tolist()], probabilities.tolist()


def _recalled(stage: StageTrace) -> list[Recalled] | None:
    """Of slots that somewhere won more than an even share, 1 / K: the others hold nothing."""
    if stage.codes is None:
        return None
    assert stage.slot_maps is not None
    last = int(stage.steps[0]) - 1
    maps, codes = stage.slot_maps[0, last], stage.codes[0, last]  # (K, h, w), (K,)
    held = (maps.amax((-2, -1)) > 1 / len(maps)).nonzero().squeeze(1).tolist()
    found = [Recalled(slot, int(codes[slot]), float(maps[slot].mean())) for slot in held]
    return sorted(found, key=lambda recalled: -recalled.share)
