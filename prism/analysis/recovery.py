"""Does each step bring an occluded image closer to the clean one? Cosines of features, stage by stage, step by step.

A stage is given what the stage before it made of the occluded image, and is stopped after 1, 2, ... T_max steps; each
state is compared with what the stage makes of the clean image.

B images, T steps, (h, w) tokens of a stage.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prism.model.backbone import Prism
from prism.model.stage import Features


def closeness(network: Prism, clean: Tensor, occluded: Tensor) -> list[Tensor]:
    """Mean cosine over tokens after each step, (B, T) for each stage; images are normalised, (B, 3, H, W)."""
    return [cosines.mean((-2, -1)) for cosines in closeness_by_token(network, clean, occluded)]


@torch.inference_mode()
def closeness_by_token(network: Prism, clean: Tensor, occluded: Tensor) -> list[Tensor]:
    """The cosine of every token after each step, (B, T, h, w) for each stage."""
    targets, inputs = network.pyramid(clean).features, stage_inputs(network, occluded)
    stages: list[Any] = list(network.stages)
    return [
        torch.stack([F.cosine_similarity(step.features, target, dim=1) for step in stage.steps(given)], dim=1)
        for stage, given, target in zip(stages, inputs, targets, strict=True)
    ]


def stage_inputs(network: Prism, images: Tensor) -> list[Features]:
    """What each stage is given: the images, then the maps and the evidence of the stage before."""
    found = network.pyramid(images)
    seen = found.evidence or [None] * len(found.features)
    return [Features(images), *map(Features, found.features[:-1], seen[:-1])]


@torch.inference_mode()
def closeness_when_halted(network: Prism, clean: Tensor, occluded: Tensor) -> list[Tensor]:
    """The cosine of every token of the stages' own outputs, where the halting unit stops: (B, h, w) each."""
    return [
        F.cosine_similarity(a, b, dim=1)
        for a, b in zip(network.pyramid(occluded).features, network.pyramid(clean).features, strict=True)
    ]
