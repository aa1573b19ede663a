"""prism predict."""

from pathlib import Path
from typing import Any

from tyro.conf import Positional


def predict(
    images: Positional[list[Path]],
    checkpoint: Path | None = None,
    model: str = "",
    size: int | None = None,
    out: Path = Path("runs/predict"),
) -> None:
    """The five likeliest classes of images; for PRISM also its steps and slot maps.

    Args:
        images: image files
        checkpoint: weights (safetensors); by default those of prism_nano that this package carries
        model: a PRISM variant or timm model; by default what the checkpoint says
        size: side of the images in pixels; by default what the checkpoint was trained at, or 224
        out: folder for predictions.json and slot maps
    """
    from prism.analysis.drawing import lines, sheet
    from prism.model.weights import shipped
    from prism.reporting.figures import pixels, save

    if not (checkpoint := checkpoint or shipped("prism_nano")):
        raise ValueError("this installation carries no weights: give --checkpoint FILE.safetensors")

    def draw(image: Any, trace: Any, path: Path) -> None:
        save(sheet(lines(pixels(image), trace.stages)), path, dpi=110)

    predict_by("classification", checkpoint, images, out, model, size=size, draw=draw)
    print(f"wrote {out / 'predictions.json'}")


def predict_by(task: str, checkpoint: Path, images: list[Path], out: Path, model: str = "", **options: Any) -> None:
    """Show what a network of this task finds in image files."""
    from prism.model.creation import find_checkpoint
    from prism.reporting.tables import show
    from prism.tasks.registry import find_task
    from prism.tasks.task import task_of

    found = find_checkpoint(model, checkpoint)
    rows = find_task(task_of([found], task)).predict(found, images, out, **options)
    show(rows, f"{found.name}, {checkpoint}")
