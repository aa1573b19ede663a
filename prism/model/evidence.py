"""How much could be seen of what a token stands for: its evidence, from 0, a hole, to 1 (docs/paper_map.md).

B images, C channels, (H, W) positions. Evidence is (B, 1, H, W) beside a map, and (B, N, 1) beside tokens.

A surface of one colour shows nothing of what is there, whatever the colour: so holes are found by their lack of
contrast, pixel by pixel, and nobody has to say where they are. Training sees whole images, in which hardly a pixel is
that blank; what the network does where evidence is missing is not learned but follows: what was not seen enters no
mean and no convolution, and the edge of a hole is no feature.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from prism.model.attention import at_least_float32
from prism.model.compilation import exporting

FLOOR = 1e-5  # the squared contrast at which half is believed: far below that of a clear sky, far above rounding
LEAST = 1e-4  # what a hole weighs where nothing else was seen


def contrast_evidence(images: Tensor, floor: float = FLOOR) -> Tensor:
    """Of each pixel, the least c / (c + floor) of the 3 x 3 windows that it is in: (B, C, H, W) -> (B, 1, H, W).

    c is the squared difference of a window's brightest and darkest pixel, averaged over channels: exactly 0 in a hole.
    The least, so that a hole reaches to its very edge, where other windows show the contrast with what is beside it.
    """
    images = at_least_float32(images)
    ranges = _over_windows(images, torch.maximum) - _over_windows(images, torch.minimum)  # (B, C, H - 2, W - 2)
    contrast = ranges.square().mean(1, keepdim=True)
    return _over_windows(F.pad(contrast / (contrast + floor), (2, 2, 2, 2), value=1.0), torch.minimum)


def _over_windows(maps: Tensor, pick: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The highest or the lowest of every 3 x 3 window. A pooling layer takes twenty times as long."""
    rows = pick(pick(maps[..., :-2, :], maps[..., 1:-1, :]), maps[..., 2:, :])
    return pick(pick(rows[..., :-2], rows[..., 1:-1]), rows[..., 2:])


def merged(evidence: Tensor, side: int) -> Tensor:
    """Of side x side positions that become one: something was seen there if it was in any of them."""
    return F.max_pool2d(evidence, side, ceil_mode=True)


def filled(features: Tensor, evidence: Tensor, side: int) -> Tensor:
    """Within each side x side positions, those that were not seen take the mean of those that were.

    (B, C, H, W) -> the same with sides that are multiples of `side`: beyond the edge there is nothing to see.
    """
    features = padded(features, side)
    weights = (padded(evidence, side) + LEAST).to(features.dtype)
    means = F.avg_pool2d(features * weights, side) / F.avg_pool2d(weights, side)
    return F.interpolate(means, scale_factor=side).lerp(features, weights.clamp_max(1))


def padded(maps: Tensor, side: int) -> Tensor:
    """Zeros to the right and below, up to a multiple of `side`."""
    height, width = maps.shape[-2:]
    # as a pooling counts its windows, so that an exported graph sees the two to be the same
    padding = (0, (width - 1) // side * side + side - width, 0, (height - 1) // side * side + side - height)
    return F.pad(maps, padding) if exporting() or any(padding) else maps


def weighted(features: Tensor, evidence: Tensor) -> Tensor:
    """A map whose plain mean over positions is the mean of what was seen."""
    weights = evidence + LEAST
    return features * (weights / weights.mean((-2, -1), keepdim=True)).to(features.dtype)


def shrunk(gathered: Tensor, seen: Tensor, least: float = 0.1) -> Tensor:
    """Sums over the tokens of a slot as means over those that were seen; a slot that saw little stays small.

    (B, K, D) sums, (B, K, 1) share of the slot's tokens that were seen.
    """
    return gathered / (seen + least * (1 - seen))
