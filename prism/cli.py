"""The commands: verb -> function."""

import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import torch
import tyro
from accelerate import Accelerator, PartialState
from rich.console import Console
from timm.data import resolve_data_config
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, arg
from tyro.extras import subcommand_type_from_defaults

import prism
from prism.data.coco import open_annotated
from prism.data.pictures import open_split, unit_pixels
from prism.data.scenes import SHAPES, Scenes
from prism.data.segmentation import LabelledImages, open_segmentation
from prism.data.sources import limited
from prism.evaluation import complexity, speed, table
from prism.model.creation import Checkpoint, create, find_checkpoint, find_checkpoints, open_model
from prism.model.weights import read_about
from prism.occlusion import CURVES, FILLS, PAPER_SETTINGS, OcclusionBenchmark, Subject
from prism.occlusion import detection as detection_benchmark
from prism.occlusion import segmentation as segmentation_benchmark
from prism.occlusion.benchmark import Pictures
from prism.occlusion.fills import Fill
from prism.recipes.catalogue import RECIPES, first_line, rehearse, run
from prism.studies import accuracy, feeding, prediction
from prism.studies import detection as detection_study
from prism.studies import occlusion as occlusion_study
from prism.studies import segmentation as segmentation_study
from prism.studies import slots as slot_study
from prism.tasks.detection import TITLES, load_detector
from prism.tasks.segmentation import Inference, load_segmenter

app = tyro.extras.SubcommandApp()
Recipe = Annotated[
    subcommand_type_from_defaults(
        {name: make() for name, make in RECIPES.items()}, {name: first_line(name) for name in RECIPES}
    ),
    arg(name=""),
]
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
    network, pixels = create(model), _size(size)
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
        networks[spec] = network = create(name)
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
    model: str = "",
    checkpoint: Path | None = None,
    size: int | None = None,
    seed: int = 0,
    out: Path = Path("runs/slots"),
) -> None:
    """Draw which slot wins which part of a picture, stage by stage and step by step.

    Args:
        image: a picture; a generated scene by default
        model: a PRISM variant; by default what the checkpoint says, or prism_nano
        checkpoint: its weights (safetensors); untrained without
        size: side of the picture in pixels; by default what the checkpoint was trained at, or 224
        seed: of the scene and of untrained weights
        out: folder for slots.png and slots.csv
    """
    torch.manual_seed(seed)
    model = model or (read_about(checkpoint) if checkpoint else {}).get("model", "prism_nano")
    found = find_checkpoint(model, checkpoint) if checkpoint else Checkpoint(model)
    network = open_model(found)
    if not isinstance(network, prism.Prism):
        raise ValueError(f"{model} has no slots: name a PRISM variant")
    rows = slot_study.draw(network, slot_study.picture(image, size or found.size or 224, seed), out)
    table.show(rows, f"{model}{'' if checkpoint else ', untrained'}: steps and slots")
    print(f"wrote {out / 'slots.png'} and {out / 'slots.csv'}")


@app.command
def occlusion(
    models: Positional[list[str]],
    data: str,
    split: str = "",
    out: Path = Path("runs/occlusion"),
    pretrained: bool = False,
    size: int | None = None,
    full: bool = False,
    fills: str = "mean",
    seeds: str = "0",
    batch: int = 64,
    workers: int = 2,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """How well do models stand occlusion? Several side by side, every one on the same pixels.

    `accelerate launch -m prism.cli occlusion ...` shares the pictures among processes; the result is the same.

    Args:
        models: NAME of a PRISM variant or timm model, NAME=FILE,... with weights of training runs, or FILE.safetensors
        data: a folder of folders of pictures, one a class; or scenes, the generated ones
        split: subfolder of the data to use, such as val; of scenes train, val or clean, which is their default
        out: folder for the CSV, tables, curves and report.html; a run that was interrupted goes on there
        pretrained: use timm's published weights
        size: side of the images; by default what the first checkpoint was trained at, or 224
        full: whole curves instead of the paper's settings
        fills: what stands in hidden pixels, comma-separated: mean, black, grey, noise, blur, texture, or all
        seeds: mask seeds, comma-separated
        batch: images at a time
        workers: processes that read pictures
        limit: measure only so many pictures, spread over the data; of scenes 1000 by default
        device: auto, cpu, cuda, ...
    """
    processes, device = _place(device)
    checkpoints = [checkpoint for spec in models for checkpoint in find_checkpoints(spec)]
    splits, classes = _pictures(checkpoints, data, [split], size, limit)
    subjects = _subjects(checkpoints, classes, pretrained)
    benchmark = OcclusionBenchmark(
        next(iter(splits.values())),
        CURVES if full else PAPER_SETTINGS,
        _fills(fills),
        [int(n) for n in _numbers(seeds)],
        batch=batch,
        workers=workers,
        device=device,
        folder=out / "predictions",
        processes=processes,
    )
    with Console(stderr=True, quiet=not benchmark.is_first).status("") as status:
        rows = occlusion_study.run(benchmark, subjects, out, _command(), status.update)
    if benchmark.is_first:
        table.show(rows, f"top-1 accuracy, {benchmark.fills[0]} fill")
        print(f"wrote {out / 'report.html'}")
    processes.destroy_process_group()


@app.command(name="eval")
def eval_(
    models: Positional[list[str]],
    data: str,
    split: str = "",
    pretrained: bool = False,
    size: int | None = None,
    fixed_steps: Steps = "",
    memory: str = "",
    batch: int = 64,
    workers: int = 2,
    limit: int | None = None,
    device: str = "auto",
    out: Path | None = None,
) -> None:
    """Accuracy on whole pictures, one row a split; of PRISM also its steps and what they cost.

    Of detectors, COCO's twelve numbers for boxes and masks: of all objects and of those flagged as occluded.

    Args:
        models: NAME=FILE,... with weights of training runs, FILE.safetensors, or NAME of a PRISM variant or timm model
        data: a folder of folders of pictures, one a class; or scenes, the generated ones
        split: subfolders of the data to use, comma-separated; of scenes train, val and clean, which is their default
        pretrained: use timm's published weights
        size: side of the images; by default what the first checkpoint was trained at, or 224
        fixed_steps: let PRISM take exactly so many steps, in all stages or in each
        memory: vq, continuous or off; by default as PRISM was trained
        batch: images at a time
        workers: processes that read pictures
        limit: measure only so many pictures of a split, spread over it; of scenes 1000 by default
        device: auto, cpu, cuda, ...
        out: folder for accuracy.csv and accuracy.md
    """
    if models and _task(models[0]) == "detection":
        _eval_detectors([Path(model) for model in models], data, split or "val", batch, workers, limit, device, out)
        return
    processes, device = _place(device)
    checkpoints = [checkpoint for spec in models for checkpoint in find_checkpoints(spec)]
    splits, classes = _pictures(checkpoints, data, split.split(","), size, limit)
    subjects = _subjects(checkpoints, classes, pretrained)
    networks = [subject.model for subject in subjects if isinstance(subject.model, prism.Prism)]
    if (fixed_steps or memory) and not networks:
        raise ValueError(f"steps and memory are PRISM's, and {', '.join(models)} is none")
    for network in networks:
        if fixed_steps:
            steps = _whole(fixed_steps)
            network.fixed_steps = steps if len(steps) > 1 else steps[0]
        if memory:
            network.memory = memory  # pyright: ignore[reportAttributeAccessIssue]
    with Console(stderr=True, quiet=not processes.is_main_process).status("") as status:
        rows = accuracy.measure(subjects, splits, batch, workers, device, processes, status.update)
    if processes.is_main_process:
        table.show([{name: row[name] for name in accuracy.SHOWN} for row in rows], f"accuracy on {data}, per cent")
        if out:
            table.write(rows, out / "accuracy", f"`{_command()}`")
            print(f"wrote {out / 'accuracy.csv'} and {out / 'accuracy.md'}")
    processes.destroy_process_group()


@app.command
def predict(
    images: Positional[list[Path]],
    checkpoint: Path,
    model: str = "",
    size: int | None = None,
    out: Path = Path("runs/predict"),
) -> None:
    """The five likeliest classes of pictures; of PRISM also its steps and slot maps.

    Args:
        images: pictures
        checkpoint: weights (safetensors)
        model: a PRISM variant or timm model; by default what the checkpoint says
        size: side of the pictures in pixels; by default what the checkpoint was trained at, or 224
        out: folder for predictions.json and slot maps
    """
    found = find_checkpoint(model, checkpoint)
    rows = prediction.predict(open_model(found), images, found.classes or [], size or found.size or 224, out)
    table.show(rows, f"{found.name}, {checkpoint}")
    print(f"wrote {out / 'predictions.json'}")


@app.command
def segment(
    images: Positional[list[Path]],
    checkpoint: Path,
    window: int | None = None,
    stride: int | None = None,
    flip: bool = False,
    scales: str = "1",
    out: Path = Path("runs/segment"),
) -> None:
    """What is where in pictures? An overlay with a legend and an index mask of each.

    Args:
        images: pictures, of any size
        checkpoint: weights of a segmenter (safetensors)
        window: look through squares of this side instead of at whole pictures
        stride: pixels from one window to the next; by default the window's side
        flip: look at the mirrored picture too
        scales: look at pictures of these relative sizes, comma-separated
        out: folder for NAME-overlay.png and NAME-mask.png
    """
    [(subject, inference)] = _segmenters([checkpoint], window, stride, flip, scales)
    rows = segmentation_study.segment(subject, inference.network.classes, images, out)
    table.show(rows, f"{subject.name}, {checkpoint}")
    print(f"wrote {2 * len(rows)} pictures into {out}")


@app.command
def detect(
    images: Positional[list[Path]],
    checkpoint: Path,
    occlude: float | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    out: Path = Path("runs/detect"),
) -> None:
    """Find objects in photographs: boxes, masks and labels, drawn and as JSON.

    Args:
        images: pictures of any size
        checkpoint: weights of a detector (safetensors)
        occlude: look again with this share hidden of two of the objects that were found
        threshold: lowest score of an object that is drawn
        seed: of what is hidden
        out: folder for NAME.png and NAME.json, and NAME-occluded.png and .json
    """
    detector = load_detector(checkpoint)
    occlusion = detection_study.Occlusion(occlude, seed) if occlude is not None else None
    rows = detection_study.draw(detector, images, out, threshold, occlusion)
    table.show(rows, f"{TITLES[detector.design.head]} on {detector.design.model}, {checkpoint}")
    print(f"wrote {len(rows)} pictures and as many JSON files into {out}")


@app.command(name="occlusion-detection")
def occlusion_detection(
    data: str,
    files: Positional[tuple[Path, ...]] = (),
    split: str = "val",
    out: Path = Path("runs/occlusion-detection"),
    shares: str = "0.1,0.3,0.5,0.7",
    visible: bool = False,
    fills: str = "mean",
    seeds: str = "0",
    write: bool = False,
    batch: int = 8,
    workers: int = 2,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """How well do detectors stand occlusion? AP clean and with a share of two objects a picture hidden (M30, M50).

    Args:
        data: a folder with pictures and COCO JSON, in COCO's layout or with instances_{train,val}.json; or scenes
        files: weights of detectors (safetensors); those of one backbone and head are its training runs
        split: which pictures of it
        out: folder for CSVs, tables, examples and report.html
        shares: of an object's pixels that are hidden, comma-separated
        visible: ask for the part of an object that is left to see, not for the whole
        fills: what stands in hidden pixels, comma-separated: mean, black, grey, noise, blur, texture, or all
        seeds: mask seeds, comma-separated
        write: also write the occluded pictures as COCO folders, for other frameworks; without files do only this
        batch: pictures at a time
        workers: processes that read pictures
        limit: measure only so many pictures, spread over the data; of scenes 500 by default
        device: auto, cpu, cuda, ...
    """
    if not files and not write:
        raise ValueError("name at least one detector's weights, or --write the occluded pictures")
    _, device = _place(device)
    pictures = open_annotated(data, split, int(read_about(files[0]).get("size", 96)) if files else 96, limit)
    benchmark = detection_benchmark.DetectionBenchmark(
        pictures,
        [0.0, *_numbers(shares)],
        _fills(fills),
        [int(n) for n in _numbers(seeds)],
        visible,
        batch=batch,
        workers=workers,
        device=device,
    )
    subjects = detection_study.subjects_of(files, pictures)
    with Console(stderr=True).status("") as status:
        rows = detection_benchmark.write(benchmark, subjects, out, _command(), status.update) if files else []
        blocks = detection_benchmark.write_folders(benchmark, out, status.update) if write else []
    if rows:
        table.show(rows, f"AP on {data}, per cent, {benchmark.fills[0]} fill")
        print(f"wrote {out / 'report.html'}")
    if blocks:
        table.show(blocks, f"COCO folders in {out}, and what is hidden there")


@app.command(name="occlusion-segmentation")
def occlusion_segmentation(
    files: Positional[list[Path]],
    data: str,
    split: str = "val",
    out: Path = Path("runs/occlusion-segmentation"),
    full: bool = False,
    fills: str = "mean",
    seeds: str = "0",
    window: int | None = None,
    stride: int | None = None,
    flip: bool = False,
    scales: str = "1",
    batch: int = 8,
    workers: int = 2,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """How well do segmenters stand occlusion? mIoU clean and with 30 % of patches hidden, on the same pixels.

    Args:
        files: weights of segmenters (safetensors); those of one model are its training runs
        data: a folder in the layout of ADE20K, of VOC, or of images/SPLIT beside masks/SPLIT; or scenes
        split: which pictures of it
        out: folder for CSVs, tables, curves, examples and report.html
        full: the whole curve, 10 to 70 % hidden
        fills: what stands in hidden pixels, comma-separated: mean, black, grey, noise, blur, texture, or all
        seeds: mask seeds, comma-separated
        window: look through squares of this side instead of at whole pictures
        stride: pixels from one window to the next; by default the window's side
        flip: look at mirrored pictures too
        scales: look at pictures of these relative sizes, comma-separated
        batch: pictures at a time, of those that have one size
        workers: processes that read pictures
        limit: measure only so many pictures, spread over the data
        device: auto, cpu, cuda, ...
    """
    _, device = _place(device)
    subjects, inferences = zip(*_segmenters(files, window, stride, flip, scales), strict=True)
    classes = inferences[0].network.classes
    size = int(read_about(files[0]).get("size", 64))
    samples = open_segmentation(data, split, size, classes=len(classes))
    for file, inference in zip(files, inferences, strict=True):
        if (known := inference.network.classes) != samples.classes:
            raise ValueError(f"{file} knows {len(known)} classes, which are not the {len(samples.classes)} of {data}")
    benchmark = segmentation_benchmark.SegmentationBenchmark(
        LabelledImages(samples if limit is None else limited(samples, limit)),
        samples.classes,
        segmentation_benchmark.CURVE if full else segmentation_benchmark.PAPER_SETTINGS,
        _fills(fills),
        [int(n) for n in _numbers(seeds)],
        batch=batch,
        workers=workers,
        device=device,
    )
    with Console(stderr=True).status("") as status:
        rows = segmentation_benchmark.write(benchmark, subjects, out, _command(), status.update)
    table.show(rows, f"mIoU on {data}, per cent, {benchmark.fills[0]} fill")
    print(f"wrote {out / 'report.html'}")


@app.command
def train(recipe: Recipe) -> None:
    """Train a recipe, or go on with a run that was interrupted."""
    if recipe.dry_run:
        print(rehearse(recipe))
        return
    run(recipe)
    if PartialState().is_main_process:
        print(f"wrote {recipe.out / 'best.safetensors'} and {recipe.out / 'report.html'}")


@app.command
def feed(recipe: Recipe) -> None:
    """Does the data keep up? Training speed on real batches against that on batches held in memory."""
    with Console(stderr=True).status("") as status:
        rows = feeding.measure(recipe, steps=20, repeats=5, progress=status.update)
    table.show(rows, f"{recipe.model}: pictures a second fed and held, and the share kept, per cent")


@app.command
def recipes() -> None:
    """List the recipes that `prism train` knows."""
    rows = [
        {"recipe": name, "what": first_line(name), "model": made.model, "epochs": made.epochs, "batch": made.batch}
        for name, made in ((name, make()) for name, make in RECIPES.items())
    ]
    table.show(rows, "prism train RECIPE; prism train RECIPE --help lists what can be changed")


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what a user got wrong is one sentence, not a traceback."""
    try:
        app.cli(prog="prism", args=arguments, config=(OmitArgPrefixes, OmitSubcommandPrefixes))
    except (ValueError, OSError) as error:
        sentence = str(error)
        if "Original Traceback" in sentence:  # a worker's: its last line is the error's name and what it says
            sentence = sentence.strip().splitlines()[-1].partition(": ")[2]
        sys.exit(f"prism: {sentence}")
    except KeyboardInterrupt:
        sys.exit("prism: interrupted")


def _task(spec: str) -> str:
    """What the weights of a file are for."""
    file = Path(spec)
    return read_about(file).get("task", "") if file.suffix == ".safetensors" and file.exists() else ""


def _eval_detectors(
    files: list[Path], data: str, split: str, batch: int, workers: int, limit: int | None, device: str, out: Path | None
) -> None:
    accelerator = Accelerator(cpu=device == "cpu" or not torch.accelerator.is_available())
    pictures = open_annotated(data, split, int(read_about(files[0]).get("size", 96)), limit)
    rows = detection_study.evaluate(files, pictures, accelerator, min(batch, 8), workers)
    if accelerator.is_main_process:
        shown = [
            {"detector": " ".join(str(row.pop(key)) for key in ("backbone", "head", "run", "subset"))} | row
            for row in map(dict, rows)
        ]
        table.show(shown, f"COCO's numbers on {data} {split}, from 0 to 1")
        if out:
            table.write(rows, out / "detection", f"COCO's numbers from 0 to 1.\n\n`{_command()}`")
            print(f"wrote {out / 'detection.csv'} and {out / 'detection.md'}")


def _place(device: str) -> tuple[PartialState, str]:
    """This process among those that a launcher started, and the device it works on."""
    processes = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available())
    device = str(processes.device) if device == "auto" else device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return processes, device


def _pictures(
    checkpoints: list[Checkpoint], data: str, splits: list[str], size: int | None, limit: int | None
) -> tuple[dict[str, Pictures], list[str]]:
    """Pictures by split, and their classes: those that a file of weights names, or the train split, or the first."""
    size = size or next((c.size for c in checkpoints if c.size), 224)
    if data == "scenes":
        length = 1000 if limit is None else limit
        names = [split or "clean" for split in splits]
        return {name: Scenes(name, length, size, transform=unit_pixels) for name in names}, list(SHAPES)
    classes = next((c.classes for c in checkpoints if c.classes), None)
    found: dict[str, Pictures] = {}
    for split in splits:
        pictures = open_split(Path(data), split, size, classes)
        classes, found[split] = pictures.classes, pictures if limit is None else limited(pictures, limit)
    return found, classes or []


def _subjects(checkpoints: list[Checkpoint], classes: list[str], pretrained: bool) -> list[Subject]:
    torch.manual_seed(0)  # untrained weights are the same in every process, and in a run that goes on
    subjects = []
    for checkpoint in checkpoints:
        network = open_model(checkpoint, len(classes), pretrained)
        known = checkpoint.classes or [""] * int(network.num_classes)  # pyright: ignore[reportArgumentType]
        if len(known) != len(classes) or (checkpoint.classes and known != classes):
            source = checkpoint.file or checkpoint.name
            raise ValueError(f"{source} knows {len(known)} classes, which are not the {len(classes)} of the data")
        cfg = resolve_data_config(model=network)
        file, kind = checkpoint.file, "pretrained" if pretrained else "untrained"
        run = str(file.with_suffix("")) if file else kind
        subjects.append(Subject(checkpoint.name, run, network, cfg["mean"], cfg["std"]))
    return subjects


def _segmenters(
    files: list[Path], window: int | None, stride: int | None, flip: bool, scales: str
) -> list[tuple[Subject, Inference]]:
    if not files:
        raise ValueError("name at least one file of weights")
    found = []
    for file in files:
        inference = load_segmenter(file, window=window, stride=stride, flip=flip, scales=_numbers(scales))
        network = inference.network
        subject = Subject(network.backbone.name, str(file.with_suffix("")), inference, network.mean, network.std)
        found.append((subject, inference))
    return found


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
