"""Classification: one label a picture."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from timm.data import resolve_data_config
from timm.data.transforms_factory import create_transform
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from prism.data.sources import Labelled, original_index
from prism.data.stream import ALONE, Ranks
from prism.model.backbone import Prism
from prism.occlusion.masks import scattered_mask
from prism.tasks.learner import PAPER_WEIGHTS, Learner, Outcome, Weights, mean_steps, prism_losses

Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Classifier(Learner):
    """Cross-entropy, and PRISM's own losses where the network is one.

    `mixing` blends pictures and labels of a batch (mixup, cutmix); targets are then shares of classes.
    """

    def __init__(
        self, network: nn.Module, smoothing: float = 0.0, mixing: Mixing | None = None, weights: Weights = PAPER_WEIGHTS
    ):
        super().__init__()
        self.network, self.smoothing, self.mixing, self.weights = network, smoothing, mixing, weights

    def forward(self, pictures: Tensor, targets: Tensor) -> Outcome:
        if self.mixing is not None:  # it smooths labels itself
            pictures, targets = self.mixing(pictures, targets)
        if not isinstance(self.network, Prism):
            return Outcome({"classification": self._cross_entropy(self.network(pictures), targets)}, {})
        logits, trace = self.network.forward_traced(pictures, slot_maps=False)
        losses = {"classification": self._cross_entropy(logits, targets)} | prism_losses(trace, self.weights)
        return Outcome(losses, mean_steps(trace))

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, label_smoothing=0.0 if self.mixing else self.smoothing)


def training_view(
    network: nn.Module,
    size: int,
    smallest: float,
    flip: bool,
    randaugment: str | None,
    jitter: float,
    erasing: float,
    scattered: float,
) -> Callable[[Any, int], tuple[Tensor, int]]:
    """timm's augmentation of a PIL picture; `smallest` is the least share of it that a crop shows.

    Of a share `scattered` of the pictures, random cells take the mean colour, which is 0 after normalisation.
    """
    config = resolve_data_config(model=network)
    transform = create_transform(
        (3, size, size),
        is_training=True,
        scale=(smallest, 1.0),
        hflip=0.5 if flip else 0.0,
        color_jitter=jitter,
        auto_augment=randaugment,
        interpolation="bicubic",
        mean=config["mean"],
        std=config["std"],
        re_prob=erasing,
        re_mode="pixel",
    )

    def view(picture: Any, label: int) -> tuple[Tensor, int]:
        shown: Tensor = transform(picture)  # pyright: ignore
        if scattered and torch.rand(()) < scattered:
            shown = shown.masked_fill(scattered_mask((size, size)), 0)
        return shown, label

    return view


class OwnPictures(Dataset[tuple[Tensor, int]]):
    """This process's pictures of a split, as they are judged: every world-th one."""

    def __init__(self, pictures: Labelled, view: Callable[[Any], Tensor], ranks: Ranks = ALONE):
        self.pictures, self.view = pictures, view
        self.indices = range(ranks.rank, len(pictures), ranks.world)

    def __len__(self) -> int:
        return len(self.indices)

    def original_index(self, place: int) -> int:
        return original_index(self.pictures, self.indices[place])

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture, label = self.pictures[self.indices[index]]
        return self.view(picture), label


@torch.inference_mode()
def accuracy(
    network: nn.Module, own: Dataset[tuple[Tensor, int]], accelerator: Accelerator, batch: int, workers: int
) -> dict[str, float]:
    """Top-1 and top-5 in per cent, loss, and PRISM's mean steps; over the `own` pictures of all processes."""
    batches: Iterable[tuple[Tensor, Tensor]] = DataLoader(own, batch, num_workers=workers)
    device = accelerator.device
    # one parameter tells the width of all: a float64 run is judged in float64
    dtype = next(network.parameters()).dtype
    totals = torch.zeros(4, dtype=torch.float64, device=device)
    steps = torch.zeros(len(network.stages) if isinstance(network, Prism) else 0, dtype=torch.float64, device=device)
    for images, labels in batches:
        images, labels = images.to(device, dtype), labels.to(device)
        with accelerator.autocast():
            if isinstance(network, Prism):
                logits, trace = network.forward_traced(images, slot_maps=False)
                steps += torch.stack([stage.steps.sum() for stage in trace.stages])
            else:
                logits = network(images)
        rank = (logits > logits.gather(1, labels[:, None])).sum(1)
        loss = F.cross_entropy(logits.float(), labels, reduction="sum")
        hits, near = (rank == 0).sum(), (rank < 5).sum()
        totals += torch.stack([hits.double(), near.double(), loss.double(), torch.tensor(len(labels)).to(loss)])
    hits, near, loss, count = accelerator.reduce(totals).tolist()  # pyright: ignore
    figures = {"top-1": 100 * hits / count, "top-5": 100 * near / count, "loss": loss / count}
    for stage, total in enumerate(accelerator.reduce(steps).tolist(), start=1):  # pyright: ignore
        figures[f"steps {stage}"] = total / count
    return figures
