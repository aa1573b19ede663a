"""Occlusion for any model: pure maskers and the benchmark's protocol."""

from prism.occlusion.benchmark import CURVES, PAPER_SETTINGS, Occluded, OcclusionBenchmark, Setting, Subject
from prism.occlusion.fills import FILLS, fill
from prism.occlusion.masks import block_mask, instance_mask, mask_generator, only_one_mask, patch_mask

__all__ = [
    "CURVES",
    "FILLS",
    "PAPER_SETTINGS",
    "Occluded",
    "OcclusionBenchmark",
    "Setting",
    "Subject",
    "block_mask",
    "fill",
    "instance_mask",
    "mask_generator",
    "only_one_mask",
    "patch_mask",
]
