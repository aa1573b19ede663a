"""What a recipe will cost on GPUs, on paper: nothing here was measured on one."""

from math import ceil
from typing import NamedTuple

from torch import nn

from prism.metrics.complexity import PAPER_STEPS, macs_by_module, step_cost
from prism.tasks.classification.recipes import Classification
from prism.tasks.learner import find_prism

PEAKS = {"RTX A6000": 155e12, "A100": 312e12, "H100": 989e12}  # dense bf16 operations per second, by their data sheets
UTILISATION = 0.1  # assumed: a step has many small operations
BACKWARD = 2  # forwards that a backward pass costs
IMAGES = {"imagenet": 1_281_167}  # of data that may not be there yet
IMAGE_BYTES = 110_000  # of a photograph of ImageNet, as published
READER = 1 / 4.4e-3  # images per second of a reader: 500 x 375 pixels, decoded and augmented on one core of an EPYC
SHARDS = 128  # of training images, if that gives every reader its own


class Cost(NamedTuple):
    macs: float  # of a forward pass of one image
    images: int  # of an epoch
    epochs: float
    devices: int

    def hours(self, peak: float) -> float:
        """Of all devices together, working at once."""
        operations = 2 * (1 + BACKWARD) * self.macs * self.images * self.epochs
        return operations / (peak * UTILISATION * self.devices) / 3600

    def speed(self, peak: float) -> float:
        """Images per second that one device takes."""
        return peak * UTILISATION / (2 * (1 + BACKWARD) * self.macs)


def sentences(recipe: Classification, network: nn.Module) -> list[str]:
    """Hours, data, readers and checkpoints of a recipe; nothing if nobody says how many images there are."""
    images = recipe.length or IMAGES.get(recipe.data)
    if images is None:
        return []
    epochs = recipe.epochs if recipe.steps is None else recipe.steps * recipe.batch / images
    cost = Cost(_macs(network, recipe.size), images, epochs, recipe.devices)
    total = cost.macs * images * epochs
    half = 1 if recipe.precision != "fp32" else 2  # TF32 is half as fast
    hours = ", ".join(f"{name} {cost.hours(peak / half):,.1f} h" for name, peak in PEAKS.items())
    lanes = recipe.devices * max(1, recipe.workers)
    shards = lanes * ceil(SHARDS / lanes)
    readers = ", ".join(f"{name} {ceil(cost.speed(peak / half) / READER)}" for name, peak in PEAKS.items())
    weights = sum(value.numel() * value.element_size() for value in network.state_dict().values())
    trained = sum(value.numel() * value.element_size() for value in network.parameters())
    size = weights + 2 * trained + (weights if recipe.average is not None else 0)
    gpus = "1 GPU" if recipe.devices == 1 else f"{recipe.devices} GPUs"
    return [
        f"{cost.macs / 1e9:.2f} GMAC x {images:,} images x {epochs:g} epochs = {total:.2e} MAC forward; "
        f"{1 + BACKWARD} times that with the backward pass",
        f"on {gpus} at {UTILISATION:.0%} of their peak (assumed, not measured): {hours}",
        f"data: {images * IMAGE_BYTES / 1e9:,.0f} GB, such as {shards} shards of {images // shards:,} images, "
        f"{images // shards * IMAGE_BYTES / 1e6:,.0f} MB each",
        f"readers per GPU, at {READER:.0f} images/s each: {readers}",
        f"a checkpoint has {size / 1e6:,.0f} MB, {recipe.keep} are kept; the weights have {weights / 1e6:,.0f} MB",
    ]


def _macs(network: nn.Module, size: int) -> float:
    """A PRISM is counted at the paper's mean steps."""
    prism = find_prism(network)
    return step_cost(prism, (size, size)).macs(PAPER_STEPS) if prism else macs_by_module(network, (size, size))[""]
