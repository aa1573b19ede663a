"""Where the network meets torch.compile and torch.export.

A loop that ends when the images say so cannot be one graph. It runs in Python, and the steps it calls are graphs.
An exported network has no Python: there the loop is an operator (prism/export/looping.py).
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

# One block serves four stages, and each of them one image, few and many: more than dynamo's default of 8.
MOST_GRAPHS = 64


def run_in_python(function: Function) -> Function:
    """The function itself is left to Python; what it calls is compiled."""
    return torch.compiler.disable(function, recursive=False)  # pyright: ignore[reportReturnType]


def never_compile(function: Function) -> Function:
    """For a handful of tiny operations, which the guards of a graph would cost more than."""
    return torch.compiler.disable(function)  # pyright: ignore[reportReturnType]


def exporting() -> bool:
    """Whether a graph for every size of images is being made, in which nothing may depend on their size."""
    return torch.compiler.is_exporting()


@never_compile
def room_for_graphs() -> AbstractContextManager[object]:
    dynamo = sys.modules.get("torch._dynamo")  # absent as long as nothing was ever compiled
    return dynamo.config.patch(recompile_limit=MOST_GRAPHS) if dynamo else nullcontext()


@never_compile
def batch_will_change(*tensors: Tensor) -> None:
    """Ask for one graph for all batch sizes, instead of one for each."""
    if dynamo := sys.modules.get("torch._dynamo"):
        for tensor in tensors:
            dynamo.maybe_mark_dynamic(tensor, 0)
