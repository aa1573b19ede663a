"""Scenes that tell something about the networks that the package carries; a test holds each to its word.

`python -m prism.app.stories` searches for them again, when there are new weights.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from prism.analysis.pairs import hide
from prism.app.explanation import Answer, explain
from prism.app.networks import Players, open_players
from prism.data.images import unit_pixels
from prism.data.scenes import SHAPES, Scenes
from prism.model.weights import shipped
from prism.occlusion.masks import mask_generator
from prism.occlusion.settings import CLEAN, Setting

SEARCHED = 200  # scenes
BLOCK, PATCHES, WINDOW = Setting("BlockMask", 112), Setting("PatchMask", 0.3), Setting("OnlyOne", 134.4)


class Told(NamedTuple):
    """PRISM's answers to a scene, and the baseline's to what is left of it."""

    truth: str
    whole: Answer
    hidden: Answer
    forgetful: Answer  # hidden, without memory
    brief: Answer  # hidden, one step
    baseline: Answer

    def right(self, *answers: Answer) -> bool:
        return all(answer.sure and answer.choices[0].name == self.truth for answer in answers)

    def wrong(self, answer: Answer) -> bool:
        return answer.sure and answer.choices[0].name != self.truth


class Story(NamedTuple):
    """A scene of `val`, and what hides parts of it in addition."""

    scene: int
    note: str = ""
    setting: Setting = CLEAN
    holds: Callable[[Told], bool] = lambda told: True

    @property
    def seed(self) -> int:
        """Of the mask."""
        return self.scene


STORIES = (
    Story(178, "PRISM is right, the baseline is wrong", BLOCK,
          lambda told: told.right(told.hidden) and told.wrong(told.baseline) and not told.right(told.brief)),
    Story(100, "PRISM takes one more step", BLOCK,
          lambda told: told.right(told.whole, told.hidden) and _steps(told.hidden) > _steps(told.whole)),
    Story(70, "one step is not enough", BLOCK,
          lambda told: told.right(told.whole, told.hidden) and told.wrong(told.brief)),
    Story(90, "PRISM is sure, and wrong", BLOCK, lambda told: told.right(told.whole) and told.wrong(told.hidden)),
    Story(50, "nothing hidden: paint over it", CLEAN, lambda told: told.right(told.whole, told.baseline)),
    Story(117, "covered by other objects", CLEAN, lambda told: told.right(told.whole, told.baseline)),
    Story(128, "30% of patches hidden", PATCHES, lambda told: told.right(told.whole, told.hidden)),
    Story(92, "all but a block hidden", WINDOW, lambda told: told.right(told.whole, told.hidden)),
)  # fmt: skip


def told(players: Players, story: Story) -> Told:
    image, label = Scenes("val", story.scene + 1, players.size, transform=unit_pixels)[story.scene]
    pair = hide(image, story.setting, mask_generator(0, story.seed), torch.tensor(players.ours.mean))
    whole, hidden, forgetful, brief = (reading.answers for reading in explain(players, pair).readings)
    return Told(SHAPES[label], whole[0], hidden[0], forgetful[0], brief[0], hidden[1])


def _steps(answer: Answer) -> int:
    return sum(answer.steps or ())


def search(players: Players) -> None:
    """Print, for each story, the scenes that tell it, clearest first. Light occlusion is in even scenes."""
    for setting in dict.fromkeys(story.setting for story in STORIES):
        found = {scene: told(players, Story(scene, setting=setting)) for scene in range(SEARCHED)}
        for story in (story for story in STORIES if story.setting == setting):
            fits = [scene for scene, each in found.items() if story.holds(each) and scene % 2 == story.scene % 2]
            fits.sort(key=lambda scene: -min(answer.choices[0].probability for answer in found[scene][1:]))
            print(f"{setting.name}, {story.note}: {len(fits)} of {SEARCHED}, {fits[:8]}", flush=True)


if __name__ == "__main__":
    weights = [shipped(f"{name}.scenes") for name in ("prism_nano", "pvt_v2_b0")]
    search(open_players(*weights))  # pyright: ignore[reportArgumentType]
