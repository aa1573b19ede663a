"""prism recipes."""

from collections.abc import Sequence

import tyro

from prism.reporting.tables import show
from prism.tasks.registry import first_line, recipes


def run(words: Sequence[str]) -> None:
    tyro.cli(list_recipes, prog="prism recipes", args=list(words))


def list_recipes() -> None:
    """List the recipes that `prism train` knows."""
    every = [(name, make, make()) for name, make in recipes().items()]
    rows = [
        {"recipe": name, "what": first_line(make), "model": made.model, "epochs": made.epochs, "batch": made.batch}
        for name, make, made in every
    ]
    show(rows, "prism train RECIPE; prism train RECIPE --help lists what can be changed")
