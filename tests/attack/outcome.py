"""One command, called in this process as a shell would call it, and what came of it."""

import csv
import io
import json
import math
import signal
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from prism.cli import main

LIMIT = 120  # seconds until a command counts as hung, on a busy machine too


class Outcome(NamedTuple):
    kind: str  # success, sentence, usage, or what is never allowed: traceback, hang, unsound
    said: str
    seconds: float


class Hang(BaseException):
    pass


def attempt(words: Sequence[str], out: Path | None = None) -> Outcome:
    """`out` is the folder that a success must have filled with numbers that are numbers."""
    printed, started = io.StringIO(), time.perf_counter()
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(LIMIT)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            main([*words])
        kind, said = "success", ""
    except SystemExit as stop:
        kind, said = _judged(stop.code, printed.getvalue())
    except Hang:
        kind, said = "hang", f"after {LIMIT} s"
    except BaseException:  # the very thing that is looked for
        kind, said = "traceback", traceback.format_exc()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if "Traceback (most recent call last)" in printed.getvalue():
        kind, said = "traceback", printed.getvalue()
    if kind == "success" and out and (wrong := unsound(out)):
        kind, said = "unsound", wrong
    return Outcome(kind, said, time.perf_counter() - started)


def _judged(code: Any, printed: str) -> tuple[str, str]:
    if code in (None, 0):
        return "success", ""
    if code == 2:
        return "usage", printed
    whole = isinstance(code, str) and code.startswith("prism: ") and len(code) > 12 and len(code.splitlines()) == 1
    return ("sentence", code) if whole else ("traceback", f"exit {code!r}: {printed}")


def _stop(*_: Any) -> None:
    raise Hang


def unsound(out: Path) -> str:
    """A number in what was written that is none."""
    for path in sorted(out.rglob("*.json")):
        try:
            json.loads(path.read_text(), parse_constant=_refused)
        except ValueError as error:
            return f"{path.name}: {error}"
    for path in sorted(out.rglob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.reader(file):
                if wrong := next((cell for cell in row if _not_finite(cell)), None):
                    return f"{path.name} has {wrong}"
    return ""


def _refused(word: str) -> None:
    raise ValueError(f"it holds {word}")


def _not_finite(cell: str) -> bool:
    try:
        return not math.isfinite(float(cell))
    except ValueError:
        return False
