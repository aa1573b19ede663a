"""Bad inputs from good ones: bytes and JSON, changed at random but reproducibly."""

import json
from collections.abc import Callable
from io import BytesIO
from random import Random
from typing import Any

import numpy as np
from PIL import Image

NAMES = ["plain", "[/bold]", "a|b", "two\nlines", "caf\udce9", "$x$", "%s", "'", "\x1b[0m", "ü" * 40]
NUMBERS = [0, -1, 1, 255, 65_536, 2**31, 2**63, 10**400, -(10**400), 0.5, 1e300, float("nan"), float("inf")]
VALUES: list[Any] = [None, True, False, "", "banana", "9" * 300, [], {}, [[]], {"a": {}}, [1, "2"], *NUMBERS]
DEEP = "DEEP"  # is written as brackets within brackets, more than any reader takes


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Cut, flipped, overwritten, repeated, or with something else inside."""
    found = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 8])):
        at = random.randrange(max(1, len(found) if random.random() < 0.5 else min(64, len(found))))
        match random.randrange(7):
            case 0:
                del found[at:]
            case 1 if found:
                found[at] ^= 1 << random.randrange(8)
            case 2:
                found[at : at + 4] = random.choice(
                    [b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff", b"\x00\x00\x40\x00"]
                )
            case 3:
                found[at:at] = found[at : at + random.randrange(1, 64)]
            case 4:
                found[at : at + 16] = random.randbytes(16)
            case 5:
                del found[at : at + random.randrange(1, 32)]
            case _:
                found += random.randbytes(random.randrange(1, 64))
    return bytes(found)


def images(random: Random) -> Callable[[], bytes]:
    """A maker of bad images in every format that Pillow writes."""
    Image.init()
    kinds = sorted(Image.SAVE)
    whole: dict[tuple[str, str], bytes] = {}

    def make() -> bytes:
        kind, mode = random.choice(kinds), random.choice(["RGB", "L", "RGBA", "P", "1", "CMYK", "I;16", "F"])
        if (kind, mode) not in whole:
            whole[kind, mode] = _saved(kind, mode)
        data = whole[kind, mode]
        if random.random() < 0.1:  # a head of one format before the body of another
            other = random.choice(list(whole.values()))
            cut = random.randrange(1, 40)
            return data[:cut] + other[cut:]
        return mutate_bytes(data, random) if random.random() < 0.9 else data

    return make


def _saved(kind: str, mode: str) -> bytes:
    """As the format takes it: in another mode where it refuses, or no image at all."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (18, 24, 3), np.uint8))
    for own in (mode, "RGB", "L", "1"):
        buffer = BytesIO()
        try:
            noise.convert("L").convert(own).save(buffer, kind) if own == "I;16" else noise.convert(own).save(
                buffer, kind
            )
            return buffer.getvalue()
        except Exception:  # writers refuse modes in as many ways as readers refuse files
            continue
    return kind.encode() + bytes(100)


def mutate_json(found: Any, random: Random) -> str:
    """The text of a JSON document in which one to three values are something else, or missing, or of absurd depth."""
    found = json.loads(json.dumps(found))
    for _ in range(random.choice([1, 1, 2, 3])):
        nodes = [*_nodes(found)]
        if not nodes:
            break
        holder, key = random.choice(nodes)
        match random.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = [holder[key], holder[key]]
            case 2:
                holder[key] = random.choice(NAMES)
            case 3 if random.random() < 0.2:
                holder[key] = DEEP
            case _:
                holder[key] = random.choice(VALUES)
    text = json.dumps(found).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)
    return mutate_bytes(text.encode(), random).decode(errors="replace") if random.random() < 0.1 else text


def _nodes(found: Any) -> Any:
    """Every place that holds a value, as (holder, key)."""
    for key in list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ():
        yield found, key
        yield from _nodes(found[key])
