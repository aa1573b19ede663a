"""Do features of an occluded image stay close to those of the clean one? Cosines of a stage's maps.

B images, D channels, (h, w) tokens of a stage.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prism.baselines.pyramid import STRIDES
from prism.model.backbone import Prism

KINDS = ("tokens", "pooled")  # the cosine at every token, averaged; and that of the two maps averaged over tokens


def has_stages(model: nn.Module) -> bool:
    """Whether `stage_maps` can be asked for."""
    infos = getattr(model, "feature_info", ())
    return isinstance(model, Prism) or (hasattr(model, "forward_intermediates") and len(infos) >= len(STRIDES))


@torch.inference_mode()
def stage_maps(model: nn.Module, images: Tensor) -> list[Tensor]:
    """The maps of the stages (B, D, h, w): strides 4 to 32 where there are such, otherwise of four depths."""
    if isinstance(model, Prism):
        return model.pyramid(images).features
    network: Any = model
    reductions = [info["reduction"] for info in network.feature_info]
    if set(STRIDES) <= set(reductions):
        chosen = [len(reductions) - 1 - reductions[::-1].index(stride) for stride in STRIDES]
    else:
        chosen = [round(len(reductions) * quarter / 4) - 1 for quarter in range(1, 5)]
    return network.forward_intermediates(images, indices=chosen, intermediates_only=True)


def cosines(clean: Tensor, occluded: Tensor) -> dict[str, Tensor]:
    """Of two maps (B, D, h, w), by kind: (B,) each."""
    return {
        "tokens": F.cosine_similarity(clean, occluded, dim=1).mean((-2, -1)),
        "pooled": F.cosine_similarity(clean.mean((-2, -1)), occluded.mean((-2, -1)), dim=1),
    }


def similarities(model: nn.Module, clean: Tensor, occluded: Tensor) -> Tensor:
    """(B, stages, kinds) of normalised images (B, 3, H, W)."""
    found = [cosines(a, b) for a, b in zip(stage_maps(model, clean), stage_maps(model, occluded), strict=True)]
    return torch.stack([torch.stack([of_stage[kind] for kind in KINDS], dim=-1) for of_stage in found], dim=1)
