"""The commands: verb -> function."""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
import tyro
from accelerate import Accelerator, PartialState
from rich.console import Console
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, arg
from tyro.extras import subcommand_type_from_defaults

import prism
from prism.data.coco import CocoPictures
from prism.data.preprocessing import Preprocessing
from prism.data.segmentation import LabelledImages, open_segmentation
from prism.data.sources import limited
from prism.metrics import complexity, speed
from prism.model.creation import Checkpoint, create, find_checkpoint, find_checkpoints, open_model
from prism.model.metadata import VERSION, read_metadata
from prism.model.weights import halved, read_weights, shipped
from prism.occlusion import CURVES, FILLS, PAPER_SETTINGS, OcclusionBenchmark
from prism.occlusion import detection as detection_benchmark
from prism.occlusion import segmentation as segmentation_benchmark
from prism.occlusion.fills import Fill
from prism.recipes.catalogue import RECIPES, first_line, rehearse, run
from prism.reporting import provenance, tables
from prism.studies import accuracy, feeding, prediction, results
from prism.studies import detection as detection_study
from prism.studies import occlusion as occlusion_study
from prism.studies import segmentation as segmentation_study
from prism.studies import slots as slot_study
from prism.studies.catalogue import find_study, overview
from prism.studies.material import open_pictures, open_subjects
from prism.tasks.detection import TITLES, load_detector
from prism.training.checkpoint import export as write_weights

app = tyro.extras.SubcommandApp()
Recipe = Annotated[
    subcommand_type_from_defaults(
        {name: make() for name, make in RECIPES.items()}, {name: first_line(name) for name in RECIPES}
    ),
    arg(name=""),
]
Steps = Annotated[str, arg(metavar="S1,S2,S3,S4")]
PAPER_STEPS = ",".join(map(str, complexity.PAPER_STEPS))
Task = Literal["classification", "detection", "segmentation"]


class OfClassifiers(NamedTuple):
    """Options of classification alone."""

    pretrained: bool = False
    """use published weights: those that this package carries for PRISM, timm's for others"""
    size: int | None = None
    """side of the images; by default what the first checkpoint was trained at, or 224"""


class OfDetectors(NamedTuple):
    """Options of detection alone."""

    shares: str = "0.1,0.3,0.5,0.7"
    """of an object's pixels that are hidden, comma-separated"""
    visible: bool = False
    """ask for the part of an object that is left to see, not for the whole"""
    write: bool = False
    """also write the occluded pictures as COCO folders, for other frameworks; without a model do only this"""


class Looking(NamedTuple):
    """How a segmenter looks at a picture."""

    window: int | None = None
    """look through squares of this side instead of at whole pictures"""
    stride: int | None = None
    """pixels from one window to the next; by default the window's side"""
    flip: bool = False
    """look at mirrored pictures too"""
    scales: str = "1"
    """look at pictures of these relative sizes, comma-separated"""


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
    tables.show(complexity.parts(network, pixels), f"{model} at {pixels[0]} x {pixels[1]}")
    if isinstance(network, prism.Prism):
        buffers = sum(book.codes.numel() for book in network.modules() if isinstance(book, prism.Codebook))
        tables.show(complexity.by_steps(network, pixels, [profile]), "GMACs by steps in the four stages")
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
    tables.show(rows, f"{torch.get_num_threads()} threads, {repeats} repeats, torch {torch.__version__}")
    if out:
        note = (
            f"`{provenance.command()}`, {repeats} interleaved repeats, {torch.get_num_threads()} threads, "
            f"torch {torch.__version__}, {_processor()}. Images a second are medians; the spread is the "
            "interquartile range over the median; ratios are medians over repeats."
        )
        tables.write(rows, out / "speed", note)
        print(f"wrote {out / 'speed.csv'} and {out / 'speed.md'}")


@app.command
def slots(
    image: Positional[Path | None] = None,
    model: str = "",
    checkpoint: Path | None = None,
    size: int | None = None,
    occluded: bool = False,
    seed: int = 0,
    out: Path = Path("runs/slots"),
) -> None:
    """Draw which slot wins which part of a picture, stage by stage and step by step.

    Args:
        image: a picture; a generated scene by default
        model: a PRISM variant; by default what the checkpoint says, or prism_nano
        checkpoint: its weights (safetensors); untrained without
        size: side of the picture in pixels; by default what the checkpoint was trained at, or 224
        occluded: draw it beside the same picture with a block hidden
        seed: of the scene, of untrained weights and of the block
        out: folder for slots.png and slots.csv
    """
    torch.manual_seed(seed)
    found = find_checkpoint(model, checkpoint) if checkpoint else Checkpoint(model or "prism_nano")
    model = found.name
    network = open_model(found)
    if not isinstance(network, prism.Prism):
        raise ValueError(f"{model} has no slots: name a PRISM variant")
    preprocessing = Preprocessing.from_metadata(found.metadata).at(size)
    rows = slot_study.draw(network, slot_study.picture(image, preprocessing, seed), out, occluded, seed)
    tables.show(rows, f"{model}{'' if checkpoint else ', untrained'}: steps and slots")
    print(f"wrote {out / 'slots.png'} and {out / 'slots.csv'}")


@app.command
def occlusion(
    models: Positional[list[str]],
    data: str,
    classification: OfClassifiers,
    detection: OfDetectors,
    segmentation: Looking,
    task: Task | None = None,
    split: str = "",
    out: Path | None = None,
    full: bool = False,
    fills: str = "mean",
    seeds: str = "0",
    batch: int | None = None,
    workers: int = 2,
    limit: int | None = None,
    device: str = "auto",
) -> None:
    """How well do models stand occlusion? Several side by side, every one on the same pixels.

    Of classifiers accuracy with patches or a block hidden; of detectors AP with a share of two objects a picture
    hidden (M30, M50); of segmenters mIoU with 30 % of patches hidden.
    `accelerate launch -m prism.cli occlusion ...` shares the pictures among processes; the result is the same.

    Args:
        models: NAME of a PRISM variant or timm model, NAME=FILE,... with weights of training runs, or FILE.safetensors
        data: scenes, the generated ones, or a folder: of folders of pictures, one a class; with COCO JSON; or in the
            layout of ADE20K, of VOC, or of images/SPLIT beside masks/SPLIT
        task: by default what the weights are for, and classification of a name without weights
        split: of the data, such as val, the default of detection and segmentation; that of classified scenes is clean
        out: folder for CSVs, tables, figures and report.html; by default runs/occlusion or runs/occlusion-TASK
        full: whole curves instead of the paper's settings; of detection see --shares
        fills: what stands in hidden pixels, comma-separated: mean, black, grey, noise, blur, texture, or all
        seeds: mask seeds, comma-separated
        batch: pictures at a time; by default 64, of detection and segmentation 8
        workers: processes that read pictures
        limit: measure only so many pictures, spread over the data; of scenes 1000 by default, 500 of detection
        device: auto, cpu, cuda, ...
    """
    checkpoints = [checkpoint for spec in models for checkpoint in find_checkpoints(spec, classification.pretrained)]
    chosen = _task(checkpoints, task)
    _refuse_foreign(chosen, {"classification": classification, "detection": detection, "segmentation": segmentation})
    if full and chosen == "detection":
        raise ValueError("--full does not apply to detection: its curve is asked for by --shares")
    if not checkpoints and not detection.write:
        raise ValueError("name at least one model" + (", or --write the pictures" if chosen == "detection" else ""))
    processes, device = _place(device)
    out = out or Path("runs/occlusion" if chosen == "classification" else f"runs/occlusion-{chosen}")
    how: dict[str, Any] = dict(
        fills=_fills(fills),
        seeds=_whole(seeds, least=0),
        batch=(64 if chosen == "classification" else 8) if batch is None else batch,
        workers=workers,
        device=device,
        processes=processes,
    )
    benchmark: Any
    write: Callable[..., list[dict[str, Any]]]
    match chosen:
        case "classification":
            splits, classes = open_pictures(checkpoints, data, [split], classification.size, limit)
            subjects = open_subjects(checkpoints, classes, classification.pretrained)
            settings, [pictures] = CURVES if full else PAPER_SETTINGS, splits.values()
            benchmark = OcclusionBenchmark(pictures, settings, folder=out / "predictions", **how)
            write, score = occlusion_study.run, "top-1 accuracy"
        case "detection":
            files = _files(checkpoints)
            annotated = detection_study.open_for(files, data, split or "val", limit, detection.visible, masks=True)
            _name_broken(annotated, processes)
            subjects = detection_study.subjects_of(files, annotated)
            shares = [0.0, *_numbers(detection.shares)]
            benchmark = detection_benchmark.DetectionBenchmark(
                annotated, shares, visible=detection.visible, folder=out / "done", **how
            )
            write, score = detection_benchmark.write, "AP"
        case _:
            first = checkpoints[0]
            samples = open_segmentation(data, split or "val", first.size or 64, classes=len(first.classes or []))
            subjects = segmentation_study.subjects_of(_files(checkpoints), samples.classes, **_looking(segmentation))
            labelled = LabelledImages(samples if limit is None else limited(samples, limit))
            settings = segmentation_benchmark.CURVE if full else segmentation_benchmark.PAPER_SETTINGS
            benchmark = segmentation_benchmark.SegmentationBenchmark(
                labelled, samples.classes, settings, folder=out / "done", **how
            )
            write, score = segmentation_benchmark.write, "mIoU"
    with Console(stderr=True, quiet=not benchmark.is_first).status("") as status:
        rows = write(benchmark, subjects, out, provenance.command(), status.update) if subjects else []
        folders = detection.write and benchmark.is_first
        blocks = detection_benchmark.write_folders(benchmark, out, status.update) if folders else []
    if rows:
        tables.show(rows, f"{score} on {data}, per cent, {benchmark.fills[0]} fill")
        print(f"wrote {out / 'report.html'}")
    if blocks:
        tables.show(blocks, f"COCO folders in {out}, and what is hidden there")
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

    Of detectors, COCO's twelve numbers for boxes and masks: of all objects and of those flagged as occluded; and of
    the masked, the brushed and the untouched in a folder of `prism occlusion --write`.

    Args:
        models: NAME=FILE,... with weights of training runs, FILE.safetensors, or NAME of a PRISM variant or timm model
        data: a folder of folders of pictures, one a class; of detectors with COCO JSON; or scenes, the generated ones
        split: subfolders of the data to use, comma-separated; of scenes train, val and clean, which is their default
        pretrained: use published weights: those that this package carries for PRISM, timm's for others
        size: side of the images; by default what the first checkpoint was trained at, or 224
        fixed_steps: let PRISM take exactly so many steps, in all stages or in each
        memory: vq, continuous or off; by default as PRISM was trained
        batch: images at a time
        workers: processes that read pictures
        limit: measure only so many pictures of a split, spread over it; of scenes 1000 by default
        device: auto, cpu, cuda, ...
        out: folder for accuracy.csv and accuracy.md
    """
    checkpoints = [checkpoint for spec in models for checkpoint in find_checkpoints(spec, pretrained)]
    if not checkpoints:
        raise ValueError("name at least one model")
    task = _task(checkpoints)
    if task == "segmentation":
        raise ValueError("eval judges classifiers and detectors; a segmenter's mIoU, clean too, is in prism occlusion")
    if task == "detection":
        given = {"fixed-steps": fixed_steps, "memory": memory, "size": size is not None, "pretrained": pretrained}
        if foreign := next((name for name, value in given.items() if value), None):
            raise ValueError(f"--{foreign} does not apply to detection: it is of classification")
        _eval_detectors(_files(checkpoints), data, split or "val", batch, workers, limit, device, out)
        return
    processes, device = _place(device)
    splits, classes = open_pictures(checkpoints, data, split.split(","), size, limit)
    subjects = open_subjects(checkpoints, classes, pretrained)
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
        tables.show([{name: row[name] for name in accuracy.SHOWN} for row in rows], f"accuracy on {data}, per cent")
        if out:
            tables.write(rows, out / "accuracy", f"`{provenance.command()}`")
            print(f"wrote {out / 'accuracy.csv'} and {out / 'accuracy.md'}")
    processes.destroy_process_group()


@app.command
def predict(
    images: Positional[list[Path]],
    checkpoint: Path | None = None,
    model: str = "",
    size: int | None = None,
    out: Path = Path("runs/predict"),
) -> None:
    """The five likeliest classes of pictures; of PRISM also its steps and slot maps.

    Args:
        images: pictures
        checkpoint: weights (safetensors); by default those of prism_nano that this package carries
        model: a PRISM variant or timm model; by default what the checkpoint says
        size: side of the pictures in pixels; by default what the checkpoint was trained at, or 224
        out: folder for predictions.json and slot maps
    """
    if not (checkpoint := checkpoint or shipped("prism_nano")):
        raise ValueError("this installation carries no weights: give --checkpoint FILE.safetensors")
    found = find_checkpoint(model, checkpoint)
    names = found.titles or found.classes or []
    preprocessing = Preprocessing.from_metadata(found.metadata).at(size)
    rows = prediction.predict(open_model(found), images, names, preprocessing, out)
    tables.show(rows, f"{found.name}, {checkpoint}")
    print(f"wrote {out / 'predictions.json'}")


@app.command
def segment(
    images: Positional[list[Path]],
    checkpoint: Path,
    looking: Looking,
    out: Path = Path("runs/segment"),
) -> None:
    """What is where in pictures? An overlay with a legend and an index mask of each.

    Args:
        images: pictures, of any size
        checkpoint: weights of a segmenter (safetensors)
        out: folder for NAME-overlay.png and NAME-mask.png
    """
    subject = segmentation_study.subject_of(checkpoint, **_looking(looking))
    rows = segmentation_study.segment(subject, find_checkpoint("", checkpoint).classes or [], images, out)
    tables.show(rows, f"{subject.name}, {checkpoint}")
    print(f"wrote {2 * len(rows)} pictures into {out}")


@app.command
def detect(
    images: Positional[list[Path]],
    checkpoint: Path,
    occlude: bool = False,
    share: float = 0.3,
    threshold: float = 0.5,
    seed: int = 0,
    out: Path = Path("runs/detect"),
) -> None:
    """Find objects in photographs: boxes, masks and labels, drawn and as JSON.

    Args:
        images: pictures of any size
        checkpoint: weights of a detector (safetensors)
        occlude: look again with a part hidden of two of the objects that were found
        share: of each of these objects that is hidden
        threshold: lowest score of an object that is drawn
        seed: of what is hidden
        out: folder for NAME-detected.png and .json, and NAME-detected-occluded.png and .json
    """
    detector = load_detector(checkpoint)
    occlusion = detection_study.Occlusion(share, seed) if occlude else None
    rows = detection_study.draw(detector, images, out, threshold, occlusion)
    tables.show(rows, f"{TITLES[detector.design.head]} on {detector.design.model}, {checkpoint}")
    print(f"wrote pictures and JSON files into {out}")


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
    tables.show(rows, f"{recipe.model}: pictures a second fed and held, and the share kept, per cent")


@app.command
def export(
    checkpoint: Positional[Path],
    out: Positional[Path],
    titles: Annotated[str, arg(metavar="A,B,...")] = "",
    tag: str = "",
) -> None:
    """A file of half the size: float16, but for the codebooks.

    Args:
        checkpoint: a safetensors file of a training run
        out: where the smaller one goes
        titles: the classes in words, in their order, if their names are none
        tag: by which timm tells these weights of the model from others
    """
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


@app.command
def recipes() -> None:
    """List the recipes that `prism train` knows."""
    rows = [
        {"recipe": name, "what": first_line(name), "model": made.model, "epochs": made.epochs, "batch": made.batch}
        for name, made in ((name, make()) for name, make in RECIPES.items())
    ]
    tables.show(rows, "prism train RECIPE; prism train RECIPE --help lists what can be changed")


@app.command
def study(
    name: Positional[str],
    checkpoints: Positional[tuple[str, ...]] = (),
    recipe: results.RecipeName = "scenes",
    data: str = "",
    annotated: str = "scenes",
    split: str = "",
    limit: int | None = None,
    quick: bool = False,
    seeds: str = "0",
    batch: int = 64,
    workers: int = 2,
    device: str = "auto",
    out: Path | None = None,
) -> None:
    """Make a table or figure of the paper, or one beyond it: CSV first, then pictures and Markdown from the CSV.

    `prism study list` says what there is; `prism study all` makes everything, and one page of it.

    Args:
        name: of a study, or all, or list
        checkpoints: weights as of `prism occlusion`; without any, what the study needs is trained by the recipe
        recipe: what is trained, scenes or imagenette
        data: of classification, scenes or a folder; by default the recipe's. Of given detectors or segmenters,
            theirs
        annotated: of detection and segmentation, scenes or a folder in VOC's layout with COCO JSON
        split: of the data; clean of classified scenes, otherwise val
        limit: look only at so many pictures, spread over the data
        quick: train and measure as little as still makes every figure; every row is marked as a smoke run
        seeds: of the trainings, comma-separated: several give deviations
        batch: pictures at a time
        workers: processes that read pictures
        device: auto, cpu, cuda, ...
        out: folder of the results, by default runs/study/NAME, of all runs/study
    """
    if name == "list":
        tables.show(overview(), "prism study NAME CHECKPOINT...; prism study all --recipe scenes")
        return
    chosen, console = None if name == "all" else find_study(name), Console(stderr=True)
    if chosen is None and checkpoints:
        raise ValueError("all trains what it looks at: give no checkpoints, or name one study")
    if chosen and chosen.takes in results.DENSE and checkpoints and annotated == "scenes":
        data, annotated = "", data or annotated
    plan = results.QUICK if quick else results.Plan()
    if limit is not None:
        plan = replace(plan, pictures=limit, annotated_pictures=limit)
    _, place = _place(device)
    numbers = tuple(_whole(seeds, least=0))
    folder = (out or Path("runs/study")) / "runs" / (f"{recipe}-quick" if quick else recipe)
    project = results.Project(recipe, folder, plan, data, annotated, numbers, split, batch, workers, device)
    if chosen is None:
        print(f"wrote {results.all_studies(project, out or Path('runs/study'), provenance.command(), place, console)}")
        return
    out = out or Path("runs/study") / name
    first, *_ = results.one_study(project, chosen, checkpoints, out, provenance.command(), place, console)
    print(first.text)
    if not isinstance(first.content, Path):
        tables.show(first.content, chosen.title)
    print(f"wrote {out / 'report.html'}")


@app.command(name="app")
def playground(
    checkpoint: Path | None = None,
    baseline: Path | None = None,
    examples: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 7860,
) -> None:
    """Hide parts of a picture in the browser, and watch the network think.

    Args:
        checkpoint: weights of a PRISM classifier (safetensors); by default those that the package carries
        baseline: weights of another model on the same classes, to stand beside it
        examples: folder of pictures, to choose from and to show what prototypes stand for; visitors see them
        host: 0.0.0.0 opens the page to the network
        port: of the page
    """
    try:
        from prism.app.page import open_playground, serve  # gradio is large, and an extra
    except ModuleNotFoundError as error:
        raise ValueError(f"{error.name} is not installed: pip install prism-vision[app]") from None
    serve(open_playground(checkpoint, baseline, examples), host, port)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what a user got wrong is one sentence, not a traceback."""
    try:
        words = sys.argv[1:] if arguments is None else arguments
        with provenance.called_as(words):
            app.cli(prog="prism", args=words, config=(OmitArgPrefixes, OmitSubcommandPrefixes))
    except (ValueError, OSError) as error:
        sentence = str(error)
        if "Original Traceback" in sentence:  # a worker's: its last line is the error's name and what it says
            sentence = sentence.strip().splitlines()[-1].partition(": ")[2]
        sys.exit(f"prism: {sentence}")
    except KeyboardInterrupt:
        sys.exit("prism: interrupted")


def _task(checkpoints: list[Checkpoint], asked: str | None = None) -> str:
    """What these models are for: what their weights say, and classification where they are silent."""
    for file in (checkpoint.file for checkpoint in checkpoints if checkpoint.file):
        said = read_metadata(file).task
        asked = asked or said
        if said != asked:
            raise ValueError(f"{file} is for {said}, not for {asked}")
    return asked or "classification"


def _refuse_foreign(task: str, options: Mapping[str, NamedTuple]) -> None:
    """An option of another task would change nothing, and nobody would notice."""
    for other, given in options.items():
        for name, value in given._asdict().items():
            if other != task and value != given._field_defaults[name]:
                raise ValueError(f"--{name} does not apply to {task}: it is of {other}")


def _files(checkpoints: list[Checkpoint]) -> list[Path]:
    for checkpoint in checkpoints:
        if not checkpoint.file:
            raise ValueError(f"{checkpoint.name} is a name without weights: name a file of them")
    return [checkpoint.file for checkpoint in checkpoints if checkpoint.file]


def _eval_detectors(
    files: list[Path], data: str, split: str, batch: int, workers: int, limit: int | None, device: str, out: Path | None
) -> None:
    processes, device = _place(device)
    processes.device = torch.device(device)  # which an Accelerator does not take by itself
    accelerator = Accelerator(cpu=processes.device.type == "cpu")
    pictures = detection_study.open_for(files, data, split, limit)
    _name_broken(pictures, processes)
    rows = detection_study.evaluate(files, pictures, accelerator, min(batch, 8), workers)
    if accelerator.is_main_process:
        shown = [
            {"detector": " ".join(str(row.pop(key)) for key in ("backbone", "head", "run", "subset"))} | row
            for row in map(dict, rows)
        ]
        tables.show(shown, f"COCO's numbers on {data} {split}, from 0 to 1")
        if out:
            tables.write(rows, out / "detection", f"COCO's numbers from 0 to 1.\n\n`{provenance.command()}`")
            print(f"wrote {out / 'detection.csv'} and {out / 'detection.md'}")
    processes.destroy_process_group()


def _name_broken(pictures: Any, processes: PartialState) -> None:
    """What is not judged must be known to whoever reads the numbers."""
    if isinstance(pictures, CocoPictures) and pictures.broken and processes.is_main_process:
        print(pictures.summary(), file=sys.stderr)


def _place(device: str) -> tuple[PartialState, str]:
    """This process among those that a launcher started, and the device it works on."""
    processes = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available())
    device = str(processes.device) if device == "auto" else device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return processes, device


def _looking(options: Looking) -> dict[str, Any]:
    return {**options._asdict(), "scales": _numbers(options.scales)}


def _fills(text: str) -> list[Fill]:
    kinds = list(FILLS) if text == "all" else text.split(",")
    if unknown := [kind for kind in kinds if kind not in FILLS]:
        raise ValueError(f"fills are {', '.join(FILLS)}, got {unknown[0]!r}")
    return kinds  # pyright: ignore[reportReturnType]


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"expected numbers separated by commas, got {text!r}") from None


def _whole(text: str, least: int = 1) -> list[int]:
    numbers = _numbers(text)
    if not all(n.is_integer() and n >= least for n in numbers):
        raise ValueError(f"expected whole numbers of at least {least}, got {text!r}")
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
