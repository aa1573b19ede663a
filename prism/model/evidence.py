"""How much could be seen of what a token stands for: its evidence, from 0, a hole, to 1 (docs/paper_map.md).

B images, C channels, (H, W) positions. Evidence is (B, 1, H, W) beside a map, and (B, N, 1) beside tokens.

A patch of one colour shows nothing of what is there, whatever the colour: so holes are found by their lack of contrast
and nobody has to say where they are. Training sees whole images, in which hardly a patch is that blank; what the
network does where evidence is missing is not learned but follows: what was not seen enters no mean and no convolution.
"""

import torch.nn.functional as F
from torch import Tensor

from prism.model.attention import at_least_float32
from prism.model.compilation import exporting

FLOOR = 1e-5  # the contrast at which half is believed: far below that of a clear sky, far above rounding
LEAST = 1e-4  # what a hole weighs where nothing else was seen


def contrast_evidence(images: Tensor, patch: int, floor: float = FLOOR) -> Tensor:
    """v / (v + floor) of each patch, v the variance of its pixels: (B, C, H', W') -> (B, 1, H, W)."""
    images = at_least_float32(images)
    means = F.avg_pool2d(images, patch, ceil_mode=True)
    spread = images - F.interpolate(means, scale_factor=patch)[..., : images.shape[-2], : images.shape[-1]]
    variance = F.avg_pool2d(spread.square(), patch, ceil_mode=True).mean(1, keepdim=True)
    return variance / (variance + floor)


def merged(evidence: Tensor) -> Tensor:
    """Of 2 x 2 positions that become one: something was seen there if it was in any of them."""
    return F.max_pool2d(evidence, 2, ceil_mode=True)


def filled(features: Tensor, evidence: Tensor) -> Tensor:
    """Within each 2 x 2 positions, those that were not seen take the mean of those that were.

    (B, C, H, W) -> the same with even sides: beyond an odd one there is nothing to see.
    """
    features = padded(features, 2)
    weights = (padded(evidence, 2) + LEAST).to(features.dtype)
    means = F.avg_pool2d(features * weights, 2) / F.avg_pool2d(weights, 2)
    return F.interpolate(means, scale_factor=2).lerp(features, weights.clamp_max(1))


def padded(maps: Tensor, side: int) -> Tensor:
    """Zeros to the right and below, up to a multiple of `side`."""
    padding = (0, -maps.shape[-1] % side, 0, -maps.shape[-2] % side)
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
