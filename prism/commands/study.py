"""prism study."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from tyro.conf import Positional

from prism.commands.parsing import parse
from prism.model.checks import Count, Workers
from prism.studies.catalogue import RecipeName, find_study, overview
from prism.tasks.parsing import whole_numbers


def run(words: Sequence[str]) -> None:
    if words and words[0] == "list":
        from prism.reporting.tables import show

        show(overview(), "prism study NAME CHECKPOINT...; prism study all --recipe scenes")
        return
    parse(study, words, "study")


def study(
    name: Positional[str],
    checkpoints: Positional[tuple[str, ...]] = (),
    recipe: str = "scenes",
    data: str = "",
    annotated: str = "",
    split: str = "",
    limit: Count | None = None,
    quick: bool = False,
    seeds: str = "0",
    batch: Count | None = None,
    workers: Workers = 2,
    device: str = "auto",
    out: Path | None = None,
) -> None:
    """Make a table or figure of the paper, or one beyond it: CSV first, then figures and Markdown from the CSV.

    `prism study list` lists the studies; `prism study all` makes all of them, and one page with everything.

    Args:
        name: a study, or all, or list
        checkpoints: weights as for `prism occlusion`; without any, the study trains what it needs with --recipe
        recipe: recipe to train with, scenes or imagenette
        data: for classification, scenes or a folder; by default the recipe's. For given detectors or
            segmenters, the same as --annotated
        annotated: for detection and segmentation, scenes, the default, or a folder in VOC's layout with COCO JSON
        split: split of the data; by default clean for classified scenes, otherwise val
        limit: use at most this many images, spread over the data
        quick: train and measure just enough to make every figure; every row is marked as a smoke run
        seeds: seeds of the training runs, comma-separated; several give standard deviations
        batch: images at a time; by default 64, for detection and segmentation 8
        workers: processes that read images
        device: auto, cpu, cuda, ...
        out: folder for the results; by default runs/study/NAME, and runs/study for all
    """
    from rich.console import Console

    from prism.reporting import provenance
    from prism.reporting.tables import show
    from prism.studies import results
    from prism.tasks.task import Conditions

    chosen, console = None if name == "all" else find_study(name), Console(stderr=True)
    if chosen is None and checkpoints:
        raise ValueError("'all' trains its own models: pass no checkpoints, or name one study")
    if recipe not in get_args(RecipeName):
        raise ValueError(f"studies train {' or '.join(get_args(RecipeName))}, got {recipe!r}")
    if chosen and chosen.takes in results.DENSE and checkpoints:  # these have one set of images, by either name
        if data and annotated:
            raise ValueError("with checkpoints, --data and --annotated mean the same images: pass only one")
        annotated = annotated or data
    plan = results.QUICK if quick else results.Plan()
    if limit is not None:
        plan = replace(plan, images=limit, annotated_images=limit)
    place = Conditions.here(device).device
    folder = (out or Path("runs/study")) / "runs" / (f"{recipe}-quick" if quick else recipe)
    numbers = tuple(whole_numbers(seeds, least=0))
    trained: Any = recipe
    project = results.Project(
        trained, folder, plan, data, annotated or "scenes", numbers, split, batch, workers, device
    )
    if chosen is None:
        page = results.all_studies(project, out or Path("runs/study"), provenance.command(), place, console)
        print(f"wrote {page}")
        return
    out = out or Path("runs/study") / name
    first, *_ = results.one_study(project, chosen, checkpoints, out, provenance.command(), place, console)
    print(first.text)
    if not isinstance(first.content, Path):
        show(first.content, chosen.title)
    print(f"wrote {out / 'report.html'}")
