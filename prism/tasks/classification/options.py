"""What commands can be told about classifiers alone."""

from typing import NamedTuple

from prism.model.checks import Side


class ClassificationOptions(NamedTuple):
    pretrained: bool = False
    """use published weights: those that this package carries for PRISM, timm's for others"""
    size: Side | None = None
    """side of the images; by default what the first checkpoint was trained at, or 224"""
    fixed_steps: str = ""
    """let PRISM take exactly so many steps, in all stages or one number per stage"""
    memory: str = ""
    """vq, continuous or off; by default as PRISM was trained"""


EVALUATION = OCCLUSION = ClassificationOptions
