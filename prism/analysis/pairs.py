"""Images whole and with parts hidden, side by side.

B images, (H, W) pixels, (h, w) tokens of a stage.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from prism.occlusion.hiding import Images, Occluded
from prism.occlusion.hiding import hide as hide_pixels
from prism.occlusion.settings import Setting


class Pair(NamedTuple):
    """One image, or a batch of them."""

    clean: Tensor  # (3, H, W) in [0, 1]
    occluded: Tensor  # the same with its hidden pixels filled
    hidden: Tensor  # (H, W) of bool


def hide(
    image: Tensor, setting: Setting, generator: torch.Generator, colour: Tensor, painted: Tensor | None = None
) -> Pair:
    """Fill with one colour what lies under the setting's mask, and what was `painted` (H, W) in addition."""
    hidden = setting.mask((image.shape[-2], image.shape[-1]), generator)
    hidden = hidden if painted is None else hidden | painted
    return Pair(image, hide_pixels(image, hidden, generator, mean=colour.tolist()), hidden)


class Pairs(Occluded):
    """The benchmark's pixels under one setting, each beside what was there."""

    def __getitem__(self, index: int) -> Pair:
        found = self.hidden(index)
        return Pair(found.clean, found.image, found.mask)


def batches(images: Images, setting: Setting, batch: int, workers: int, device: str) -> Iterator[Pair]:
    """(B, ...) each, on the device."""
    for pair in DataLoader(Pairs(images, setting), batch, num_workers=workers):
        yield Pair(*(part.to(device) for part in pair))


def hidden_tokens(hidden: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tokens of which more than half is hidden: (B, H, W) pixels -> (B, h, w) of bool."""
    return F.adaptive_avg_pool2d(hidden[:, None].float(), grid)[:, 0] > 0.5
