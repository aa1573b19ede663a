"""What a file of weights says about them: one schema for every task, and a reader that trusts nothing it reads.

A file is often a stranger's. Only what is listed here, of the right type and within bounds, ever reaches
`create_model`; whatever else a file asks for (other files, addresses, code) is refused.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from prism.model.checks import (
    LARGEST,
    Check,
    checked,
    either,
    nothing,
    number,
    one_of,
    parse_json,
    several,
    table,
    text,
    whole,
)

VERSION = 1
MOST_CLASSES = 100_000
INTERPOLATIONS = ("bicubic", "bilinear", "nearest")


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Everything that is needed to build a network again, and to show it images as it was trained to see them."""

    model: str = ""  # a PRISM variant or a timm model; "" if the file is silent
    task: str = "classification"
    network: Mapping[str, Any] = field(default_factory=dict)  # arguments of the model
    classes: list[str] | None = None
    titles: list[str] | None = None  # the classes in words, where their names are codes
    preprocessing: Mapping[str, Any] = field(default_factory=dict)  # size, crop, interpolation, mean, std
    design: Mapping[str, Any] = field(default_factory=dict)  # what the task builds around the model
    training: Mapping[str, Any] = field(default_factory=dict)  # step, epoch, seed, ...: for people to read
    tag: str = ""  # by which timm tells these weights of the model from others
    version: int = VERSION

    @property
    def names(self) -> list[str]:
        """The classes as people call them; none if the file is silent."""
        return self.titles or self.classes or []

    def header(self) -> dict[str, str]:
        """As a safetensors file holds it: JSON by key."""
        return {own.name: json.dumps(getattr(self, own.name)) for own in fields(self)}

    def with_training(self, **figures: Any) -> "Metadata":
        return replace(self, training={**self.training, **figures})


def read_metadata(path: Path) -> Metadata:
    """What the file says; nothing, if it has no header. Files of version 0, before there was a schema, are read too."""
    return metadata_of(read_header(path), path)


def metadata_of(header: Mapping[str, str], path: Path) -> Metadata:
    """What texts by key say that were found in the file, whatever its kind."""
    try:
        found = _current(header) if "version" in header else _before_versions(header)
        if found.get("version") == 0 and _overlaps(path):
            own = found["network"]
            ratio = own.get("ffn_ratio", 4.0)  # of both FFNs, in every variant
            found["network"] = {"evidence": False, "code_width": 0.5, "slot_ratio": ratio, "ffn_ratio": ratio, **own}
        for key, wrong in CHECKS.items():
            if key in found and (reason := wrong(found[key])):
                raise ValueError(f"{key} {reason}")
        if (
            found.get("task", "classification") == "classification"
            and found.get("preprocessing", {}).get("crop", 1) is None
        ):
            raise ValueError("preprocessing crop is missing: a classifier sees images of one size")
        if found.get("titles") and len(found["titles"]) != len(found.get("classes") or ()):
            raise ValueError("the number of titles must equal the number of classes")
        return Metadata(**found)
    except ValueError as error:
        raise ValueError(f"invalid metadata in {path}: {error}") from None


def read_header(path: Path) -> dict[str, str]:
    """Texts by key, as they are; a file of another kind than safetensors has none."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    if path.suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None


def _overlaps(path: Path) -> bool:
    """Whether the file holds a PRISM as it was before it went by evidence: its first patches overlap."""
    first = "stages.0.tokeniser.conv.weight"
    if path.suffix != ".safetensors":
        return False
    with safe_open(path, "pt") as file:
        return any(key.endswith(first) and file.get_slice(key).get_shape()[-1] == 7 for key in file.keys())  # noqa: SIM118


def model_arguments(words: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` words, each a known argument within its bounds; a value that is no Python literal is a text."""
    found = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"arguments of a model are KEY=VALUE, got {word!r}")
        try:
            found[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two of what is nested deeply
            found[key] = text
    if reason := _wrong_network(found):
        raise ValueError(f"network {reason}")
    return found


def _current(header: Mapping[str, str]) -> dict[str, Any]:
    known = {own.name for own in fields(Metadata)}
    found = {key: parse_json(text, key) for key, text in header.items() if key in known}
    if isinstance(version := found["version"], int) and version > VERSION:
        raise ValueError(f"version {version} is newer than this package, which reads up to {VERSION}")
    if isinstance(network := found.get("network"), dict):  # JSON has lists where networks take tuples
        found["network"] = {k: tuple(v) if isinstance(v, list) else v for k, v in network.items()}
    return found


def _before_versions(header: Mapping[str, str]) -> dict[str, Any]:
    """Files as they were written at first: plain texts, and each task with keys of its own."""
    found: dict[str, Any] = {key: header[key] for key in ("model", "task", "tag") if key in header}
    found["network"] = model_arguments(header.get("network", "").split())
    found |= {key: parse_json(header[key], key) for key in ("classes", "titles") if key in header}
    found["preprocessing"] = {key: parse_json(header[key], key) for key in ("size", "mean", "std") if key in header}
    design = parse_json(header.get("design", "{}"), "design")
    own = {"categories", "amodal", "width", "dropout", "fit"} & header.keys()
    found["design"] = (
        design | {key: parse_json(header[key], key) for key in own} if isinstance(design, dict) else design
    )
    said = {"step", "epoch", "seed", "hidden in training"} & header.keys()
    found["training"] = {key: header[key] for key in sorted(said)}
    return found | {"version": 0}


# ---- the schema

WIDTHS = several(whole(1, 65_536), 1, 16)
STEPS = whole(1, 1000)
NETWORK: dict[str, Check] = {
    "widths": WIDTHS,
    "slots": WIDTHS,
    "codes": whole(1, 1_000_000),
    "code_decay": number(0, 1),
    "beta": number(0, 1e6),
    "ffn_ratio": number(0, 64),
    "ffn_kernel": one_of(1, 3, 5, 7),
    "slot_ratio": number(0, 64),
    "code_width": number(0, 64),
    "evidence": one_of(True, False),
    "max_steps": STEPS,
    "halting_start": either(nothing, number(0, 1)),
    "fixed_steps": either(nothing, STEPS, several(STEPS, 1, 16)),
    "memory": one_of("vq", "continuous", "off"),
    "preset": one_of("default", "paper"),
    "layer_scale": number(0, 1e6),
    "drop_rate": number(0, 1),
    "drop_path_rate": number(0, 1),
    "img_size": either(nothing, whole(1, LARGEST), several(whole(1, LARGEST), 2, 2)),
}
PREPROCESSING: dict[str, Check] = {
    "size": whole(1, LARGEST),
    "crop": either(nothing, number(0.05, 1)),
    "interpolation": one_of(*INTERPOLATIONS),
    "mean": several(number(-1e6, 1e6), 3, 3),
    "std": several(number(1e-6, 1e6), 3, 3),
}


def _wrong_network(values: Any) -> str:
    return checked(values, NETWORK, "has no argument")


def _wrong_preprocessing(values: Any) -> str:
    if reason := checked(values, PREPROCESSING, "has no key"):
        return reason
    shown = values.get("size", 1) / (values.get("crop") or 1)
    return f"size and crop ask for images of {shown:.0f} pixels, more than {2 * LARGEST}" if shown > 2 * LARGEST else ""


names = either(nothing, several(text, 0, MOST_CLASSES))
CHECKS: dict[str, Check] = {
    "model": text,
    "task": text,
    "network": _wrong_network,
    "classes": names,
    "titles": names,
    "preprocessing": _wrong_preprocessing,
    "design": table,
    "training": table,
    "tag": text,
    "version": whole(0, VERSION),
}
