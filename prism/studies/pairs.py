"""Pictures whole and with parts hidden, side by side: what is lost, and what a network makes of it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from prism.occlusion.benchmark import IMAGENET_MEAN, Occluded, Pictures, Setting, Subject


class Pair(NamedTuple):
    """One picture, or a batch of them."""

    clean: Tensor  # (3, H, W) in [0, 1]
    occluded: Tensor  # the same with its hidden pixels filled
    hidden: Tensor  # (H, W) of bool


class Pairs(Dataset[Pair]):
    """The benchmark's pixels under one setting, each beside what was there; hidden ones have the mean colour."""

    def __init__(self, pictures: Pictures, setting: Setting, seed: int = 0, mean: Sequence[float] = IMAGENET_MEAN):
        self.pictures, self.setting, self.seed = pictures, setting, seed
        self.mean = mean

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Pair:
        shown = Occluded(self.pictures, self.setting, seed=self.seed, mean=self.mean).hidden(index)
        return Pair(shown.clean, shown.image, shown.mask)


def batches(pictures: Pictures, setting: Setting, batch: int | None, workers: int, device: str) -> Iterator[Pair]:
    """(B, ...) each, on the device."""
    for clean, occluded, hidden in DataLoader(Pairs(pictures, setting), batch or 64, num_workers=workers):
        yield Pair(clean.to(device), occluded.to(device), hidden.to(device))


def as_seen(images: Tensor, subject: Subject) -> Tensor:
    """Normalised as the subject was trained to see them."""
    mean, std = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (subject.mean, subject.std))
    return (images - mean) / std


def hidden_tokens(hidden: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens of which more than half can not be seen: (B, H, W) pixels -> (B, h, w) of bool."""
    return F.adaptive_avg_pool2d(hidden[:, None].float(), grid)[:, 0] > 0.5
