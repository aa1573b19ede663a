"""prism train."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from tyro.conf import arg
from tyro.extras import subcommand_type_from_defaults

from prism.commands.parsing import parse
from prism.tasks.recipe import Recipe
from prism.tasks.registry import first_line, recipes


def run(words: Sequence[str]) -> None:
    parse(with_recipe(train, "Train a recipe, or resume an interrupted run."), words, "train")


def train(recipe: Recipe) -> None:
    from accelerate import PartialState

    from prism.training.run import rehearse, train_recipe

    if recipe.dry_run:
        print(rehearse(recipe))
        return
    train_recipe(recipe)
    if PartialState().is_main_process:
        print(f"wrote {recipe.out / 'best.safetensors'} and {recipe.out / 'report.html'}")


def with_recipe(function: Callable[[Recipe], None], help: str) -> Callable[..., None]:
    """A command that takes a recipe by its name, and options that change its fields."""
    every = recipes()
    names = {name: make() for name, make in every.items()}
    Chosen: Any = Annotated[
        subcommand_type_from_defaults(names, {name: first_line(make) for name, make in every.items()}), arg(name="")
    ]

    def command(recipe: Chosen) -> None:  # pyright: ignore[reportInvalidTypeForm]
        from prism.tasks.task import check_device

        check_device(recipe.device)
        function(recipe)

    command.__doc__ = help
    return command
