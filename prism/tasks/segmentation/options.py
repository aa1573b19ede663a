"""Options of commands that are only for segmenters."""

from typing import NamedTuple

from prism.model.checks import Side


class InferenceOptions(NamedTuple):
    """Only for segmenters: how one is applied to an image."""

    window: Side | None = None
    """slide a square window of this side instead of taking whole images"""
    stride: Side | None = None
    """pixels from one window to the next; by default the window's side"""
    flip: bool = False
    """average over mirrored images too"""
    scales: str = "1"
    """average over images of these relative sizes, comma-separated"""


EVALUATION = OCCLUSION = InferenceOptions
