"""prism slots."""

from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from prism.commands.parsing import parse


def run(words: Sequence[str]) -> None:
    parse(slots, words, "slots")


def slots(
    image: Positional[Path | None] = None,
    model: str = "",
    checkpoint: Path | None = None,
    size: int | None = None,
    occluded: bool = False,
    seed: int = 0,
    out: Path = Path("runs/slots"),
) -> None:
    """Draw which slot wins which part of an image, stage by stage and step by step.

    Args:
        image: an image file; a generated scene by default
        model: a PRISM variant; by default what the checkpoint says, or prism_nano
        checkpoint: its weights (safetensors); untrained without
        size: side of the image in pixels; by default what the checkpoint was trained at, or 224
        occluded: draw it beside the same image with a block hidden
        seed: of the scene, of untrained weights and of the block
        out: folder for slots.png and slots.csv
    """
    import torch

    from prism.data.preprocessing import Preprocessing
    from prism.model.backbone import Prism
    from prism.model.creation import Checkpoint, find_checkpoint, open_model
    from prism.model.metadata import read_metadata
    from prism.reporting.tables import show
    from prism.studies.slots import draw, picture

    torch.manual_seed(seed)
    model = model or (read_metadata(checkpoint).model if checkpoint else "") or "prism_nano"
    found = find_checkpoint(model, checkpoint) if checkpoint else Checkpoint(model)
    network = open_model(found)
    if not isinstance(network, Prism):
        raise ValueError(f"{found.name} has no slots: name a PRISM variant")
    pixels = picture(image, Preprocessing.from_metadata(found.metadata).at(size), seed)
    rows = draw(network, pixels, out, occluded, seed)
    show(rows, f"{found.name}{'' if checkpoint else ', untrained'}: steps and slots")
    print(f"wrote {out / 'slots.png'} and {out / 'slots.csv'}")
