"""Scenes that tell something about the networks that the package carries; a test holds each to its word.

`python -m prism.app.stories` searches for them again, when there are new weights.
"""

from typing import NamedTuple

import torch

from prism.analysis.pairs import hide
from prism.app.explanation import Explanation, explain
from prism.app.networks import Players
from prism.data.images import unit_pixels
from prism.data.scenes import SHAPES, Scenes
from prism.occlusion.masks import mask_generator
from prism.occlusion.settings import CLEAN, Setting


class Story(NamedTuple):
    """A scene of `val` and what hides parts of it in addition."""

    scene: int
    note: str = ""
    setting: Setting = CLEAN
    seed: int = 0


STORIES: tuple[Story, ...] = (
    Story(0),
    Story(1),
)


def seen(players: Players, story: Story) -> tuple[Explanation, str]:
    """What the networks make of it, and the truth."""
    image, label = Scenes("val", story.scene + 1, players.size, transform=unit_pixels)[story.scene]
    colour = torch.tensor(players.ours.mean)
    return explain(players, hide(image, story.setting, mask_generator(0, story.seed), colour)), SHAPES[label]
