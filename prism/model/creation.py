"""A model by its name, by a file of weights that says what it is, or by both."""

from pathlib import Path
from typing import Any, NamedTuple

import timm
from torch import nn

from prism.model.metadata import Metadata, read_metadata
from prism.model.weights import load_weights, read_weights, shipped


class Checkpoint(NamedTuple):
    """A model's name, the file of its weights if there is one, and what that says about them."""

    name: str
    file: Path | None = None
    metadata: Metadata = Metadata()

    @property
    def classes(self) -> list[str] | None:
        return self.metadata.classes

    @property
    def titles(self) -> list[str] | None:
        return self.metadata.titles

    @property
    def size(self) -> int | None:
        return self.metadata.preprocessing.get("size")

    @property
    def run(self) -> str:
        """The file without its suffix, by which training runs of one model are told apart."""
        return str(self.file.with_suffix("")) if self.file else "untrained"


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
    metadata = read_metadata(file)
    found = metadata.model or name
    if not found:
        raise ValueError(f"{file} does not say which model its weights are of: name the model too")
    if name and name.split(".")[0] != found.split(".")[0]:  # a timm name may carry a tag
        raise ValueError(f"{file} holds weights of {found}, not of {name}")
    return Checkpoint(found, file, metadata)


def open_model(checkpoint: Checkpoint, num_classes: int = 1000, pretrained: bool = False) -> nn.Module:
    """Ready to be used. It has as many classes as its weights, or `num_classes` if these do not tell."""
    name, file, metadata = checkpoint
    if not file:
        return create(name, pretrained=True) if pretrained else create(name, num_classes=num_classes)
    head = read_weights(file).get(f"{getattr(timm.get_pretrained_cfg(name), 'classifier', 'head')}.weight")
    colours = {key: metadata.preprocessing[key] for key in ("mean", "std") if key in metadata.preprocessing}
    model = create(
        name,
        num_classes=num_classes if head is None else len(head),
        pretrained_cfg_overlay=colours,
        **metadata.network,
    )
    load_weights(model, file)
    return model


def check_name(name: str) -> None:
    if not timm.is_model(name):
        raise ValueError(f"no model is called {name!r}; PRISM's are {', '.join(timm.list_models('prism_*'))}")


def create(name: str, **arguments: Any) -> nn.Module:
    check_name(name)
    try:
        return timm.create_model(name, **arguments).eval()
    except TypeError as error:
        raise ValueError(f"{name} does not take these arguments: {error}") from None
    except (RuntimeError, OSError) as error:
        if not arguments.get("pretrained"):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"could not load pretrained weights for {name}: {reason}") from None
