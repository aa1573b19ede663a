"""How a result was made: the exact command, the version, and the commit of a checkout."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

PYTHON = "called from Python"
_WORDS: ContextVar[Sequence[str] | None] = ContextVar("words", default=None)


@contextmanager
def called_as(words: Sequence[str]) -> Iterator[None]:
    """What is written within is the work of `prism WORDS...`, whoever calls: a shell, a test, a notebook."""
    before = _WORDS.set(tuple(words))
    try:
        yield
    finally:
        _WORDS.reset(before)


def command() -> str:
    """Ready to be pasted into a shell; of a call from Python that no command stands for, just that."""
    words = _WORDS.get()
    return PYTHON if words is None else shlex.join(["prism", *words])


@cache
def versions() -> str:
    """Of Python and of the packages that decide what is computed."""
    return ", ".join([f"Python {python_version()}", *(f"{name} {version(name)}" for name in ("torch", "timm"))])


@cache
def build() -> str:
    """The version of the package, and the commit where it lies in a checkout."""
    try:
        own = f"prism {version('prism-vision')}"
    except PackageNotFoundError:
        own = "prism, not installed"
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return own
    try:
        words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return f"{own}, commit {subprocess.run(words, capture_output=True, text=True, timeout=5).stdout.strip()}"
    except (OSError, subprocess.SubprocessError):
        return own
