"""Numbers as people type them."""

from prism.model.checks import MOST


def numbers(text: str, least: float = 0, most: float = MOST) -> list[float]:
    found = _parsed(text)
    if not all(least <= number <= most for number in found):
        raise ValueError(f"expected numbers from {least:g} to {most:g}, got {text[:80]!r}")
    return found


def whole_numbers(text: str, least: int = 1, most: int = MOST) -> list[int]:
    found = _parsed(text)
    if not all(number.is_integer() and least <= number <= most for number in found):
        raise ValueError(f"expected whole numbers from {least} to {most}, got {text[:80]!r}")
    return [int(number) for number in found]


def _parsed(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text[:80]!r}") from None
