"""From words on a command line to the call of a function."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, arg

from prism.model.checks import check_options
from prism.tasks.registry import find_task, options

if TYPE_CHECKING:
    from prism.model.creation import Checkpoint
    from prism.tasks.task import Conditions, Task


def parse(function: Callable[..., Any], words: Sequence[str], verb: str) -> None:
    """Call the function as the words say; its docstring is the help."""
    config = (OmitArgPrefixes, OmitSubcommandPrefixes)
    tyro.cli(prepared(function), prog=f"prism {verb}", args=list(words), config=config)


def prepared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Imports the package, which registers the models, once the words are known to be right."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named).arguments
        check_options(given, {name: own.annotation for name, own in signature.parameters.items()})
        import_package()
        return function(*arguments, **named)

    return call


def import_package() -> None:
    """What `import prism` does, which the launcher has put off."""
    package = sys.modules["prism"]
    if not hasattr(package, "Prism"):
        package.__spec__.loader.exec_module(package)  # pyright: ignore[reportOptionalMemberAccess]


def options_class(verb: Literal["evaluation", "occlusion"]) -> Any:
    """One class with what each task's part of a command can be told, by the task's name."""
    own = make_dataclass("Options", [(name, own, field(default_factory=own)) for name, own in options(verb).items()])
    return Annotated[own, arg(name="")]  # no name: help is headed 'classification options'


def find_models(models: Sequence[str], asked: str | None, given: Any) -> "tuple[Task, list[Checkpoint], Any]":
    """The task that these models are for, their files, and what the task's part of the command was told."""
    from prism.model.creation import find_checkpoints
    from prism.tasks.task import task_of

    published = given.classification.pretrained
    checkpoints = [checkpoint for spec in models for checkpoint in find_checkpoints(spec, published)]
    task = find_task(task_of(checkpoints, asked))
    return task, checkpoints, options_of(task.name, given)


@contextmanager
def work_of_all(conditions: "Conditions") -> Iterator[Callable[[str], None]]:
    """Shows what is being done, in the first process alone; when it is done, those of a launcher part."""
    from prism.reporting.tables import progress

    with progress(quiet=not conditions.is_first) as said:
        yield said
    if conditions.processes is not None:
        conditions.processes.destroy_process_group()


def options_of(task: str, given: Any) -> Any:
    """Those of one task. An option of another would change nothing, and nobody would notice: it is refused."""
    for other, values in vars(given).items():
        for name, value in values._asdict().items():
            if other != task and value != values._field_defaults[name] and not hasattr(getattr(given, task), name):
                raise ValueError(f"--{name.replace('_', '-')} is only for {other}")
    return getattr(given, task)
