"""Occlusion for any model: pure maskers, one mask-and-fill, and the benchmark's protocol."""

from prism.occlusion.benchmark import OcclusionBenchmark, Predictions
from prism.occlusion.fills import FILLS, fill
from prism.occlusion.hiding import Hidden, Occluded, hide
from prism.occlusion.masks import block_mask, instance_mask, mask_generator, only_one_mask, patch_mask
from prism.occlusion.runner import Subject
from prism.occlusion.settings import CLEAN, CURVES, MASKS, PAPER_SETTINGS, Mask, Setting, register

__all__ = [
    "CLEAN",
    "CURVES",
    "FILLS",
    "MASKS",
    "PAPER_SETTINGS",
    "Hidden",
    "Mask",
    "Occluded",
    "OcclusionBenchmark",
    "Predictions",
    "Setting",
    "Subject",
    "block_mask",
    "fill",
    "hide",
    "instance_mask",
    "mask_generator",
    "only_one_mask",
    "patch_mask",
    "register",
]
