"""Options of commands that are only for detectors."""

from typing import NamedTuple


class DetectionOptions(NamedTuple):
    """Only for detectors."""

    visible: bool = False
    """evaluate against the visible part of an object, not the whole object"""


class DetectionOcclusionOptions(NamedTuple):
    """Only for detectors."""

    visible: bool = False
    """evaluate against the visible part of an object, not the whole object"""
    shares: str = ""
    """shares of an object's pixels to hide, comma-separated: 0.3,0.5 is --settings M30,M50; by default 0.1 to 0.7"""
    write: bool = False
    """also write the occluded images as COCO folders, for other frameworks; without a model do only this"""


EVALUATION = DetectionOptions
OCCLUSION = DetectionOcclusionOptions
