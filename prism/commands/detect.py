"""prism detect."""

from pathlib import Path

from tyro.conf import Positional

from prism.commands.predict import predict_by
from prism.model.checks import Share


def detect(
    images: Positional[list[Path]],
    checkpoint: Path,
    occlude: bool = False,
    share: Share = 0.3,
    threshold: Share = 0.5,
    seed: int = 0,
    out: Path = Path("runs/detect"),
) -> None:
    """Find objects in images: boxes, masks and labels, drawn and as JSON.

    Args:
        images: image files of any size
        checkpoint: weights of a detector (safetensors)
        occlude: detect again with parts of two of the found objects hidden
        share: share of each of these objects to hide
        threshold: lowest score at which an object is drawn
        seed: seed of what is hidden
        out: folder for NAME-detected.png and .json, and NAME-detected-occluded.png and .json
    """
    predict_by("detection", checkpoint, images, out, occlude=occlude, share=share, threshold=threshold, seed=seed)
    print(f"wrote images and JSON files into {out}")
