"""prism feed."""

from collections.abc import Sequence

from prism.commands.parsing import parse
from prism.commands.train import with_recipe
from prism.tasks.recipe import Recipe


def run(words: Sequence[str]) -> None:
    help = "Does data loading keep up? Training speed on real batches against that on batches held in memory."
    parse(with_recipe(feed, help), words, "feed")


def feed(recipe: Recipe) -> None:
    from prism.reporting import tables
    from prism.training.data_speed import measure

    with tables.progress() as said:
        rows = measure(recipe, steps=20, repeats=5, progress=said)
    tables.show(
        rows,
        f"{recipe.model}: images per second from files (fed) and from memory (held); share in per cent",
    )
