"""Numbers as people type them."""


def numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text!r}") from None


def whole_numbers(text: str, least: int = 1) -> list[int]:
    found = numbers(text)
    if not all(number.is_integer() and number >= least for number in found):
        raise ValueError(f"expected whole numbers of at least {least}, got {text!r}")
    return [int(number) for number in found]
