"""The commands: verb -> function."""

import os
import platform
import sys
from pathlib import Path
from typing import Annotated, Any

import timm
import torch
import tyro
from rich.console import Console
from timm.data import resolve_data_config
from torch import nn
from tyro.conf import Positional, arg

import prism
from prism.data.pictures import PictureFolder, Spread
from prism.evaluation import complexity, speed, table
from prism.model.weights import load_weights
from prism.occlusion import CURVES, FILLS, PAPER_SETTINGS, OcclusionBenchmark, Subject
from prism.occlusion.fills import Fill
from prism.studies import occlusion as occlusion_study
from prism.studies import slots as slot_study

app = tyro.extras.SubcommandApp()
Steps = Annotated[str, arg(metavar="S1,S2,S3,S4")]
PAPER_STEPS = ",".join(map(str, complexity.PAPER_STEPS))


@app.command
def info(model: Positional[str], size: str = "224", steps: Steps = PAPER_STEPS) -> None:
    """Parameters and GMACs of a model, by part; of PRISM also by steps.

    Args:
        model: a PRISM variant or any timm model
        size: side of the image, or HEIGHTxWIDTH
        steps: mean steps of the stages, for the last row
    """
    network, pixels = _create(model), _size(size)
    profile = _means(steps, network) if isinstance(network, prism.Prism) else []
    table.show(complexity.parts(network, pixels), f"{model} at {pixels[0]} x {pixels[1]}")
    if isinstance(network, prism.Prism):
        buffers = sum(book.codes.numel() for book in network.modules() if isinstance(book, prism.Codebook))
        table.show(complexity.by_steps(network, pixels, [profile]), "GMACs by steps in the four stages")
        print(f"The codebooks hold {buffers:,} further numbers, moved by averages and not by the optimiser.")


@app.command(name="speed")
def speed_(
    models: Positional[list[str]],
    size: str = "224",
    batch: str = "1,16",
    dtype: str = "float32",
    compile: bool = False,
    threads: int | None = None,
    repeats: int = 10,
    steps: Steps = "",
    out: Path | None = None,
) -> None:
    """Images a second of several models, interleaved; ratios are to the first.

    Args:
        models: PRISM variants and timm models; NAME@2.5 or NAME@S1,S2,S3,S4 forces PRISM's mean steps for one
        size: sides of the images, comma-separated
        batch: batch sizes, comma-separated
        dtype: float32 or bfloat16 (autocast)
        compile: time torch.compile(model) instead
        threads: of the CPU; all by default
        repeats: how often everything is timed
        steps: force these mean steps on every PRISM model without steps of its own
        out: folder for speed.csv and speed.md
    """
    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"dtype must be float32 or bfloat16, got {dtype!r}")
    if repeats < 2:
        raise ValueError(f"a median and a spread need at least 2 repeats, got {repeats}")
    torch.set_num_threads(threads or os.cpu_count() or 1)
    networks, forced = {}, {}
    for spec in models:
        name, _, own = spec.partition("@")
        networks[spec] = network = _create(name)
        if (own or steps) and isinstance(network, prism.Prism):
            forced[spec] = _means(own or steps, network)
        elif own:
            raise ValueError(f"{name} has no steps to force: {spec!r}")
    with Console(stderr=True).status("") as status:
        rows = speed.measure(
            networks, forced, _whole(size), _whole(batch), getattr(torch, dtype), compile, repeats, status.update
        )
    table.show(rows, f"{torch.get_num_threads()} threads, {repeats} repeats, torch {torch.__version__}")
    if out:
        note = (
            f"`{_command()}`, {repeats} interleaved repeats, {torch.get_num_threads()} threads, "
            f"torch {torch.__version__}, {_processor()}. Images a second are medians; the spread is the "
            "interquartile range over the median; ratios are medians over repeats."
        )
        table.write(rows, out / "speed", note)
        print(f"wrote {out / 'speed.csv'} and {out / 'speed.md'}")


@app.command
def slots(
    image: Positional[Path | None] = None,
    model: str = "prism_nano",
    checkpoint: Path | None = None,
    size: int = 224,
    seed: int = 0,
    out: Path = Path("runs/slots"),
) -> None:
    """Draw which slot wins which part of a picture, stage by stage and step by step.

    Args:
        image: a picture; a generated scene by default
        model: a PRISM variant
        checkpoint: its weights (safetensors); untrained without
        size: side of the picture in pixels
        seed: of the scene and of untrained weights
        out: folder for slots.png and slots.csv
    """
    torch.manual_seed(seed)
    network = _create(model)
    if not isinstance(network, prism.Prism):
        raise ValueError(f"{model} has no slots: name a PRISM variant")
    if checkpoint:
        load_weights(network, checkpoint)
    rows = slot_study.draw(network, slot_study.picture(image, size, seed), out)
    table.show(rows, f"{model}{'' if checkpoint else ', untrained'}: steps and slots")
    print(f"wrote {out / 'slots.png'} and {out / 'slots.csv'}")


@app.command
def occlusion(
    models: Positional[list[str]],
    data: Path,
    out: Path = Path("runs/occlusion"),
    pretrained: bool = False,
    size: int = 224,
    full: bool = False,
    fills: str = "mean",
    seeds: str = "0",
    batch: int = 64,
    workers: int = 2,
    limit: int | None = None,
    device: str = "cpu",
) -> None:
    """How well do models stand occlusion? Several side by side, every one on the same pixels.

    Args:
        models: PRISM variants and timm models; NAME=FILE loads weights, NAME=FILE,FILE several training runs
        data: a folder of folders of pictures, one a class
        out: folder for the CSV, tables, curves and report.html; a run that was interrupted goes on there
        pretrained: use timm's published weights
        size: side of the images
        full: whole curves instead of the paper's settings
        fills: what stands in hidden pixels, comma-separated: mean, black, grey, noise, blur, texture, or all
        seeds: mask seeds, comma-separated
        batch: images at a time
        workers: processes that read pictures
        limit: measure only so many pictures, spread over the data
        device: cpu, cuda, ...
    """
    pictures = PictureFolder(data, size)
    subjects = [s for spec in models for s in _subjects(spec, len(pictures.classes), pretrained)]
    benchmark = OcclusionBenchmark(
        pictures if limit is None else Spread(pictures, limit),
        CURVES if full else PAPER_SETTINGS,
        _fills(fills),
        [int(n) for n in _numbers(seeds)],
        batch=batch,
        workers=workers,
        device=device,
        folder=out / "predictions",
    )
    with Console(stderr=True).status("") as status:
        rows = occlusion_study.run(benchmark, subjects, out, _command(), status.update)
    table.show(rows, f"top-1 accuracy, {benchmark.fills[0]} fill")
    print(f"wrote {out / 'report.html'}")


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what a user got wrong is one sentence, not a traceback."""
    try:
        app.cli(prog="prism", args=arguments)
    except (ValueError, OSError) as error:
        sys.exit(f"prism: {error}")
    except KeyboardInterrupt:
        sys.exit("prism: interrupted")


def _create(name: str, **kwargs: Any) -> nn.Module:
    if not timm.is_model(name):
        raise ValueError(f"no model is called {name!r}; PRISM's are {', '.join(timm.list_models('prism_*'))}")
    try:
        return timm.create_model(name, **kwargs).eval()
    except (RuntimeError, OSError) as error:
        if not kwargs.get("pretrained"):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the published weights of {name} cannot be had: {reason}") from None


def _subjects(spec: str, classes: int, pretrained: bool) -> list[Subject]:
    """A model and its training runs, from NAME or NAME=FILE,FILE."""
    name, _, files = spec.partition("=")
    subjects = []
    for file in files.split(",") if files else [""]:
        network = _create(name, pretrained=pretrained) if pretrained else _create(name, num_classes=classes)
        if file:
            load_weights(network, Path(file))
        cfg = resolve_data_config(model=network)
        run = Path(file).stem if file else "pretrained" if pretrained else "untrained"
        subjects.append(Subject(name, run, network, cfg["mean"], cfg["std"]))
    return subjects


def _fills(text: str) -> list[Fill]:
    kinds = list(FILLS) if text == "all" else text.split(",")
    if unknown := [kind for kind in kinds if kind not in FILLS]:
        raise ValueError(f"fills are {', '.join(FILLS)}, got {unknown[0]!r}")
    return kinds  # pyright: ignore[reportReturnType]


def _command() -> str:
    """As typed, without where the files went: that says nothing of how they were made."""
    words = sys.argv[1:]
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    return f"prism {' '.join(words)}"


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text!r}") from None


def _whole(text: str) -> list[int]:
    numbers = _numbers(text)
    if any(n != int(n) or n < 1 for n in numbers):
        raise ValueError(f"expected whole numbers of at least 1, got {text!r}")
    return [int(n) for n in numbers]


def _means(text: str, network: prism.Prism) -> list[float]:
    numbers, stages = _numbers(text), len(network.stages)
    if len(numbers) not in (1, stages):
        raise ValueError(f"steps need one number or {stages}, got {text!r}")
    return numbers if len(numbers) == stages else numbers * stages


def _size(text: str) -> tuple[int, int]:
    numbers = _whole(text.replace("x", ","))
    if len(numbers) > 2:
        raise ValueError(f"expected a side or HEIGHTxWIDTH, got {text!r}")
    return numbers[0], numbers[-1]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
