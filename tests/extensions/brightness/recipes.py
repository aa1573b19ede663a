from dataclasses import dataclass
from pathlib import Path

from prism.tasks.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Brightness(Recipe):
    task = "brightness"
    size: int = 32


def bright_scenes() -> Brightness:
    """Brightness of generated scenes.

    `prism train bright-scenes`.
    """
    return Brightness(out=Path("runs/bright-scenes"), length=16, batch=8, epochs=1, workers=0, log_every=1)


RECIPES = {"bright-scenes": bright_scenes}
