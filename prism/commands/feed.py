"""prism feed."""

from collections.abc import Sequence

from prism.commands.parsing import parse
from prism.commands.train import with_recipe
from prism.tasks.recipe import Recipe


def run(words: Sequence[str]) -> None:
    help = "Does the data keep up? Training speed on real batches against that on batches held in memory."
    parse(with_recipe(feed, help), words, "feed")


def feed(recipe: Recipe) -> None:
    from rich.console import Console

    from prism.reporting.tables import show
    from prism.training.data_speed import measure

    with Console(stderr=True).status("") as status:
        rows = measure(recipe, steps=20, repeats=5, progress=status.update)
    show(rows, f"{recipe.model}: images per second fed and held, and the share kept, per cent")
