"""Options of commands that are only for classifiers."""

from typing import NamedTuple

from prism.model.checks import Side


class ClassificationOptions(NamedTuple):
    """Only for classifiers."""

    pretrained: bool = False
    """use pretrained weights: those shipped with the package for PRISM, timm's for others"""
    size: Side | None = None
    """side of the images; by default the size that the first checkpoint was trained at, or 224"""
    fixed_steps: str = ""
    """let PRISM take exactly this many steps, in all stages or one number per stage"""
    memory: str = ""
    """vq, continuous or off; by default as PRISM was trained"""


EVALUATION = OCCLUSION = ClassificationOptions
