"""A model by its name, by a file of weights that says what it is, or by both."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import timm
import torch
from torch import nn

from prism.model.metadata import Metadata, read_metadata
from prism.model.weights import load_weights, read_weights, shipped

SPARE = 1_000_000  # numbers that a network may have and its file may lack: the file may be of another kind altogether
Built = TypeVar("Built", bound=nn.Module)


class Checkpoint(NamedTuple):
    """A model's name, the file of its weights if there is one, and what that says about them."""

    name: str
    file: Path | None = None
    metadata: Metadata = Metadata()

    @property
    def classes(self) -> list[str] | None:
        return self.metadata.classes

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
        raise ValueError(f"{file} does not say which model its weights belong to: name the model too")
    if name and name.split(".")[0] != found.split(".")[0]:  # a timm name may carry a tag
        raise ValueError(f"{file} holds weights of {found}, not of {name}")
    return Checkpoint(found, file, metadata)


def open_model(checkpoint: Checkpoint, num_classes: int = 1000, pretrained: bool = False) -> nn.Module:
    """Ready to be used. It has as many classes as its weights, or `num_classes` if these do not tell."""
    name, file, metadata = checkpoint
    check_name(name)
    if not file:
        return create(name, pretrained=True) if pretrained else create(name, num_classes=num_classes)
    head = read_weights(file).get(f"{getattr(timm.get_pretrained_cfg(name), 'classifier', 'head')}.weight")
    named = len(metadata.classes or ())
    count = (named or num_classes) if head is None else len(head) if head.ndim else 0
    if named not in (0, count):
        raise ValueError(f"invalid metadata in {file}: {named} classes, but its weights are for {count}")
    colours = {key: metadata.preprocessing[key] for key in ("mean", "std") if key in metadata.preprocessing}
    return with_weights(
        lambda: create(name, num_classes=count, pretrained_cfg_overlay=colours, **metadata.network), file
    )


def with_weights(build: Callable[[], Built], file: Path) -> Built:
    """The network that `build` makes, with the weights of a file.

    What the file says of the network might ask for more memory than there is. So it is first planned without any: its
    weights are in the file, and so it can hardly be larger than that.
    """
    held = sum(value.numel() for value in read_weights(file).values())
    try:
        with torch.device("meta"):
            planned = sum(value.numel() for value in build().state_dict().values())
    except Exception:  # it computes while it is built, or cannot be built: then the second time tells
        planned = held
    if planned > 2 * held + SPARE:
        sizes = f"the network has {planned:,} numbers, the file {held:,}"
        raise ValueError(f"{file} does not fit: the checkpoint is from a different model, as {sizes}")
    try:
        network = build()
    except Exception as error:  # what a file asks for can fail anywhere in a network's own code
        raise ValueError(f"{file} does not fit: {' '.join(str(error).split())[:300] or type(error).__name__}") from None
    load_weights(network, file)
    return network


def check_name(name: str) -> None:
    if not timm.is_model(name):
        raise ValueError(f"no model is called {name[:80]!r}; PRISM's are {', '.join(timm.list_models('prism_*'))}")
    try:
        timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # an unknown tag
        raise ValueError(f"no model is called {name!r}: {error}") from None


@torch.inference_mode()
def check_size(model: nn.Module, name: str, size: tuple[int, int]) -> None:
    """Refuse images of a size that the model does not take: only a trial tells, as each objects in its own way."""
    training = model.training
    try:
        model.eval()(torch.zeros(1, 3, *size))
    except (AssertionError, RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} does not take images of {size[0]} x {size[1]} pixels: {reason}") from None
    finally:
        model.train(training)


def create(name: str, **arguments: Any) -> nn.Module:
    """In evaluation mode."""
    return build(name, **arguments).eval()


def build(name: str, **arguments: Any) -> nn.Module:
    check_name(name)
    try:
        return timm.create_model(name, **arguments)
    except Exception as error:  # each model refuses in its own way
        if isinstance(error, TypeError):
            raise ValueError(f"{name} does not take these arguments: {error}") from error
        what = "load pretrained weights for" if arguments.get("pretrained") else "create"
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"could not {what} {name}: {reason}") from error
