"""Tasks by their names, opened when they are needed: listing recipes and options imports no torch.

A task is a folder with `recipes.py` (a dataclass and a function per recipe, RECIPES), `options.py` (what its commands
can be told) and `task.py` (TASK), and one entry here.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from prism.tasks.recipe import Recipe

if TYPE_CHECKING:
    from prism.tasks.task import Task

TASKS: dict[str, str] = {
    "classification": "prism.tasks.classification",
    "detection": "prism.tasks.detection",
    "segmentation": "prism.tasks.segmentation",
}


def find_task(name: str) -> "Task":
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; choose from {', '.join(TASKS)}")
    return import_module(f"{TASKS[name]}.task").TASK


def recipes() -> dict[str, Callable[[], Recipe]]:
    """Of all tasks, by name."""
    modules = [import_module(f"{package}.recipes") for package in TASKS.values()]
    return {name: make for module in modules for name, make in module.RECIPES.items()}


def find_recipe(name: str) -> Recipe:
    every = recipes()
    if name not in every:
        raise ValueError(f"unknown recipe {name!r}; choose from {', '.join(every)}")
    return every[name]()


def first_line(make: Callable[[], Any]) -> str:
    """What a recipe is, in a line."""
    return (make.__doc__ or "").strip().splitlines()[0]


def options(verb: Literal["evaluation", "occlusion"]) -> dict[str, type]:
    """What each task's part of a command can be told, as a class whose fields have defaults."""
    return {name: getattr(import_module(f"{package}.options"), verb.upper()) for name, package in TASKS.items()}
