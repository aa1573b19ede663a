"""A model by its name, by a file of weights that says what it is, or by both."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import timm
from torch import nn

from prism.model.weights import load_weights, model_arguments, read_about, read_weights, shipped


class Checkpoint(NamedTuple):
    """A model's name and the file of its weights, with what that says of them; None where it is silent."""

    name: str
    file: Path | None = None
    arguments: str = ""  # of the model, as KEY=VALUE words
    classes: list[str] | None = None
    titles: list[str] | None = None  # the classes in words, where their names are none
    size: int | None = None
    mean: list[float] | None = None
    std: list[float] | None = None


def find_checkpoints(spec: str, pretrained: bool = False) -> list[Checkpoint]:
    """NAME, NAME=FILE, NAME=FILE,FILE (training runs of one model), or FILE.safetensors if that says its model.

    With `pretrained`, the NAME of a PRISM is the file that the package carries for it.
    """
    if pretrained and spec.startswith("prism_") and (file := shipped(spec)):
        return [find_checkpoint(spec, file)]
    name, _, files = spec.partition("=")
    if Path(spec).suffix == ".safetensors" and ("=" not in spec or Path(spec).exists()):
        name, files = "", spec
    return [find_checkpoint(name, Path(file)) for file in files.split(",")] if files else [Checkpoint(name)]


def find_checkpoint(name: str, file: Path) -> Checkpoint:
    """The name may be empty if the file says it."""
    about = read_about(file)
    said = about.get("model", name)
    if not said:
        raise ValueError(f"{file} does not say which model its weights are of: name the model too")
    if name and name.split(".")[0] != said.split(".")[0]:  # a timm name may carry a tag
        raise ValueError(f"{file} holds weights of {said}, not of {name}")
    try:
        known = {key: json.loads(about[key]) for key in ("classes", "titles", "size", "mean", "std") if key in about}
    except json.JSONDecodeError:
        raise ValueError(f"what {file} says of its weights cannot be read") from None
    return Checkpoint(said, file, about.get("network", ""), **known)


def open_model(checkpoint: Checkpoint, num_classes: int = 1000, pretrained: bool = False) -> nn.Module:
    """Ready to be judged. It has as many classes as its weights, or `num_classes` if these do not tell."""
    name, file = checkpoint.name, checkpoint.file
    if not file:
        return create(name, pretrained=True) if pretrained else create(name, num_classes=num_classes)
    head = read_weights(file).get(f"{getattr(timm.get_pretrained_cfg(name), 'classifier', 'head')}.weight")
    model = create(
        name,
        num_classes=num_classes if head is None else len(head),
        pretrained_cfg_overlay={key: said for key in ("mean", "std") if (said := getattr(checkpoint, key))},
        **model_arguments(checkpoint.arguments.split()),
    )
    load_weights(model, file)
    return model


def create(name: str, **arguments: Any) -> nn.Module:
    if not timm.is_model(name):
        raise ValueError(f"no model is called {name!r}; PRISM's are {', '.join(timm.list_models('prism_*'))}")
    try:
        return timm.create_model(name, **arguments).eval()
    except TypeError as error:
        raise ValueError(f"{name} does not take these arguments: {error}") from None
    except (RuntimeError, OSError) as error:
        if not arguments.get("pretrained"):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the published weights of {name} cannot be had: {reason}") from None
