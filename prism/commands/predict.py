"""prism predict."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from prism.model.checks import Side


def predict(
    images: Positional[list[Path]],
    checkpoint: Path | None = None,
    model: str = "",
    size: Side | None = None,
    out: Path = Path("runs/predict"),
    engine: Annotated[str, arg(metavar="onnx|openvino")] = "",
) -> None:
    """The five most likely classes of each image; for PRISM also its steps and slot maps.

    Args:
        images: image files; with --engine, the exported file comes first
        checkpoint: weights (safetensors); by default the prism_nano weights shipped with the package
        model: a PRISM variant or timm model; by default the checkpoint's
        size: side of the images in pixels; by default what the checkpoint was trained at, or 224
        out: folder for predictions.json and slot maps
        engine: run a file that `prism export` wrote, without slot maps
    """
    if engine:
        if checkpoint or model:
            raise ValueError("--engine takes its network from the exported file: leave out --checkpoint and --model")
        if not images:
            raise ValueError("name the exported file, and the images after it")
        return _by_engine(engine, images[0], images[1:], out, size)
    from prism.analysis.drawing import lines, sheet
    from prism.model.weights import shipped
    from prism.reporting.figures import pixels, save

    if not (checkpoint := checkpoint or shipped("prism_nano")):
        raise ValueError("this installation ships no weights: pass --checkpoint FILE.safetensors")

    def draw(image: Any, trace: Any, path: Path) -> None:
        save(sheet(lines(pixels(image), trace.stages)), path, dpi=110)

    predict_by("classification", checkpoint, images, out, model, size=size, draw=draw)
    print(f"wrote {out / 'predictions.json'}")
    return None


def _by_engine(engine: str, file: Path, images: list[Path], out: Path, size: int | None) -> None:
    from prism.data.preprocessing import Preprocessing
    from prism.export.engines import open_engine
    from prism.reporting.tables import show
    from prism.tasks.classification.predict import predict as classify

    if engine not in ("onnx", "openvino"):
        raise ValueError(f"--engine must be onnx or openvino, got {engine!r}")
    if not images:
        raise ValueError(f"name the images after the exported file {file}")
    run = open_engine("onnxruntime" if engine == "onnx" else engine, file)
    if not run.metadata.model:
        raise ValueError(f"{file} has no metadata: prism export did not write it")
    if run.metadata.task != "classification" or "logits" not in run.names:
        raise ValueError(f"{file} is not a classifier")
    rows = classify(run, images, run.metadata.names, Preprocessing.from_metadata(run.metadata).at(size), out)
    show(rows, f"{run.metadata.model}, {file}")
    print(f"wrote {out / 'predictions.json'}")


def predict_by(task: str, checkpoint: Path, images: list[Path], out: Path, model: str = "", **options: Any) -> None:
    """Show what a network of this task finds in image files."""
    from prism.model.creation import find_checkpoint
    from prism.reporting.tables import show
    from prism.tasks.registry import find_task
    from prism.tasks.task import task_of

    if not images:
        raise ValueError("name at least one image")
    found = find_checkpoint(model, checkpoint)
    rows = find_task(task_of([found], task)).predict(found, images, out, **options)
    show(rows, f"{found.name}, {checkpoint}")
