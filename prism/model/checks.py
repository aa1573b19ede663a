"""Values from outside, which are trusted with nothing: JSON, and what a number, a text or a list may be.

Files and options go through the same checks. A check says what is wrong with a value, or "" if nothing is.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

LONGEST = 100_000  # characters of a text
MOST = 10**9  # what a number may be that nothing else is said of
LARGEST = 4096  # pixels of a side: a larger square would not fit into the memory of most machines
DIGITS = 18  # of a whole number; what has more is as good as infinite

Check = Callable[[Any], str]


# ---- JSON


def parse_json(text: str, name: str) -> Any:
    """Numbers of more than 18 digits become float, and infinite where float is."""
    try:
        return json.loads(text, parse_int=_whole_or_float)
    except RecursionError:
        raise ValueError(f"{name} is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None


def read_json(path: Path) -> Any:
    return parse_json(read_text(path), str(path))


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text: {error}") from None


def _whole_or_float(digits: str) -> int | float:
    return int(digits) if len(digits) <= DIGITS else float(digits)


# ---- what a value may be


def number(low: float, high: float) -> Check:
    def wrong(value: Any) -> str:
        good = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high  # nan is not
        return "" if good else f"must be a number from {low:g} to {high:g}, got {short(value)}"

    return wrong


def whole(low: int, high: int) -> Check:
    def wrong(value: Any) -> str:
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return "" if good else f"must be a whole number from {low} to {high}, got {short(value)}"

    return wrong


def one_of(*choices: Any) -> Check:
    """Of the same type too: 1 is not True."""
    known = [(type(choice), choice) for choice in choices]
    return lambda value: (
        "" if (type(value), value) in known else f"must be one of {', '.join(map(str, choices))}, got {short(value)}"
    )


def several(each: Check, least: int, most: int) -> Check:
    def wrong(value: Any) -> str:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            return f"must be a list of {least} to {most} values, got {short(value)}"
        return next((reason for reason in map(each, value) if reason), "")

    return wrong


def either(*checks: Check) -> Check:
    """At least one of them is content."""
    return lambda value: min((check(value) for check in checks), key=len)


def text(value: Any) -> str:
    return "" if isinstance(value, str) and len(value) <= LONGEST else f"must be a text, got {short(value)}"


def table(value: Any) -> str:
    good = isinstance(value, Mapping) and not any(map(text, value))
    return "" if good else f"must be an object, got {short(value)}"


def nothing(value: Any) -> str:
    return "" if value is None else f"must be null, got {short(value)}"


def checked(values: Any, checks: Mapping[str, Check], unknown: str) -> str:
    """What is wrong with a table of values; `unknown` says what a key that is not listed is not."""
    if reason := table(values):
        return reason
    if strange := next((key for key in values if key not in checks), None):
        return f"{unknown} {strange[:80]!r}; there are {', '.join(checks)}"
    return next((f"{key} {reason}" for key, value in values.items() if (reason := checks[key](value))), "")


def short(value: Any) -> str:
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):  # a whole number of thousands of digits, or a list within itself
        return f"a {type(value).__name__} that cannot be shown"


# ---- options


class Range(NamedTuple):
    """In the annotation of an option: all its numbers lie between these. Without one, they are from 0 to MOST."""

    low: float
    high: float


Count = Annotated[int, Range(1, MOST)]
Side = Annotated[int, Range(1, LARGEST)]
Share = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(1e-12, 1e38)]
Workers = Annotated[int, Range(0, 256)]


def check_options(options: Any, hints: Mapping[str, Any] | None = None) -> None:
    """Refuse a number that is not finite or not in its range, wherever it sits: by the annotations alone.

    `options` are a dataclass, a named tuple, or values by name with the annotations beside them.
    """
    if is_dataclass(options):
        values, hints = vars(options), {field.name: field.type for field in fields(options)}
    elif isinstance(options, tuple):
        values, hints = options._asdict(), type(options).__annotations__  # pyright: ignore[reportAttributeAccessIssue]
    else:
        values = options
    for name, value in values.items():
        if is_dataclass(value) or hasattr(value, "_asdict"):
            check_options(value)
        else:
            low, high = _range((hints or {}).get(name)) or Range(0, MOST)
            for part in value if isinstance(value, list | tuple) else [value]:
                _check_number(name, part, low, high)


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_whole = isinstance(value, int)
        if reason := (whole(math.ceil(low), math.floor(high)) if is_whole else number(low, high))(value):
            raise ValueError(f"{name.replace('_', '-')} {reason}")


def _range(hint: Any) -> Range | None:
    own = next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Range)), None)
    return own or next((found for part in get_args(hint) if (found := _range(part))), None)
