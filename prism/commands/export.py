"""prism export."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg


def export(
    checkpoint: Positional[Path],
    out: Positional[Path],
    titles: Annotated[str, arg(metavar="A,B,...")] = "",
    tag: str = "",
) -> None:
    """A file of half the size: float16, except for the codebooks.

    Args:
        checkpoint: a safetensors file of a training run
        out: where the smaller one goes
        titles: the classes in words, in their order, if their names are codes
        tag: by which timm tells these weights of the model from others
    """
    from prism.data.preprocessing import Preprocessing
    from prism.model.metadata import VERSION, read_metadata
    from prism.model.weights import halved, read_weights
    from prism.training.checkpoint import export as write_weights

    metadata = read_metadata(checkpoint)
    if titles:
        classes, words = metadata.classes or [], titles.split(",")
        if len(classes) != len(words):
            raise ValueError(f"{checkpoint} has {len(classes)} classes, but {len(words)} titles were given")
        metadata = replace(metadata, titles=words)
    preprocessing = Preprocessing.from_metadata(metadata).to_metadata()  # whole, also of a file from before
    metadata = replace(metadata, tag=tag or metadata.tag, preprocessing=preprocessing, version=VERSION)
    write_weights(halved(read_weights(checkpoint)), out, metadata.header())
    print(f"wrote {out}, {out.stat().st_size / 1e6:.1f} MB")
