"""The network of a file of weights, as far as it can be exported."""

from pathlib import Path

from torch import nn

from prism.model.backbone import Prism
from prism.model.creation import find_checkpoint, open_model
from prism.tasks.learner import find_prism
from prism.tasks.parsing import whole_numbers
from prism.tasks.segmentation.network import load_segmenter


def open_exportable(checkpoint: Path, task: str, to: str) -> nn.Module:
    """A classifier, or a segmenter's network; in float32, however its weights are stored."""
    if task == "classification":
        return open_model(find_checkpoint("", checkpoint))
    if task == "segmentation" and to != "hub":
        return load_segmenter(checkpoint).network
    raise ValueError(
        f"{checkpoint} is for {task}: --to {to} holds classifiers{'' if to == 'hub' else ' and segmenters'}"
    )


def with_steps(network: nn.Module, steps: str) -> list[int]:
    """Let every image take these steps; returns them, one per stage."""
    prism = network if isinstance(network, Prism) else find_prism(network)
    if prism is None:
        raise ValueError("--steps is only for PRISM")
    wanted = whole_numbers(steps)
    if max(wanted) > prism.max_steps:
        raise ValueError(f"--steps must lie between 1 and {prism.max_steps}, got {steps!r}")
    prism.fixed_steps = wanted if len(wanted) > 1 else wanted[0]
    return [*(prism.fixed_steps or ())]
