from typing import NamedTuple


class BrightnessOptions(NamedTuple):
    gamma: float = 1.0
    """of the images"""


EVALUATION = OCCLUSION = BrightnessOptions
