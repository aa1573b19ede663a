"""prism convert."""

from pathlib import Path

from tyro.conf import Positional


def convert(model: Positional[str], checkpoint: Positional[Path], out: Positional[Path]) -> None:
    """Convert an official checkpoint of a baseline into a file that every command accepts.

    Nothing in the checkpoint is executed: it is read as tensors, and refused if it holds anything else.

    Args:
        model: a baseline, such as biformer_tiny, bixt_tiny_patch16, pacavit_tiny or debiformer_tiny
        checkpoint: the official .pth file
        out: the .safetensors file to write
    """
    from prism.baselines import convert as write

    write(model, checkpoint, out)
    print(f"wrote {out}, {out.stat().st_size / 1e6:.1f} MB")
