"""What commands can be told about detectors alone."""

from typing import NamedTuple


class DetectionOptions(NamedTuple):
    visible: bool = False
    """ask for the part of an object that is left to see, not for the whole"""


class DetectionOcclusionOptions(NamedTuple):
    visible: bool = False
    """ask for the part of an object that is left to see, not for the whole"""
    shares: str = ""
    """shares of an object's pixels to hide, comma-separated: 0.3,0.5 is --settings M30,M50; by default 0.1 to 0.7"""
    write: bool = False
    """also write the occluded images as COCO folders, for other frameworks; without a model do only this"""


EVALUATION = DetectionOptions
OCCLUSION = DetectionOcclusionOptions
