"""prism segment."""

from pathlib import Path

from tyro.conf import Positional

from prism.commands.predict import predict_by
from prism.tasks.parsing import numbers
from prism.tasks.segmentation.options import InferenceOptions


def segment(
    images: Positional[list[Path]],
    checkpoint: Path,
    inference: InferenceOptions,
    out: Path = Path("runs/segment"),
) -> None:
    """Label every pixel of images: an overlay with a legend and an index mask for each.

    Args:
        images: image files of any size
        checkpoint: weights of a segmenter (safetensors)
        out: folder for NAME-overlay.png and NAME-mask.png
    """
    how = {**inference._asdict(), "scales": numbers(inference.scales, 0.05, 10)}
    predict_by("segmentation", checkpoint, images, out, **how)
    print(f"wrote {2 * len(images)} images into {out}")
