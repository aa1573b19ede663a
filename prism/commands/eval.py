"""prism eval."""

from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional

from prism.commands.parsing import find_models, options_class, parse, work_of_all
from prism.model.checks import Count, Workers


def run(words: Sequence[str]) -> None:
    Options = options_class("evaluation")

    def evaluate(
        models: Positional[list[str]],
        data: str,
        given: Options,  # pyright: ignore[reportInvalidTypeForm]
        task: str | None = None,
        split: str = "",
        batch: Count | None = None,
        workers: Workers = 2,
        limit: Count | None = None,
        device: str = "auto",
        out: Path | None = None,
    ) -> None:
        """Metrics on whole images, one row per model and split.

        For classifiers, accuracy, and PRISM's steps and their cost. For detectors, COCO's twelve numbers for boxes and
        masks, for all objects and for those flagged as occluded; in a folder that `prism occlusion --write` made, also
        for masked, brushed and untouched objects. For segmenters, mIoU, pixel accuracy and boundary IoU.

        Args:
            models: NAME=FILE,... with weights of training runs, FILE.safetensors, or NAME of a PRISM variant or timm
                model
            data: scenes (generated), or a folder as for `prism occlusion`
            task: by default the task of the weights, and classification for a name without weights
            split: subfolders of the data to use, comma-separated; for scenes train, val and clean
            batch: images at a time; by default 64, for detection and segmentation 8
            workers: processes that read images
            limit: at most this many images of a split, spread over it; for scenes 1000 by default
            device: auto, cpu, cuda, ...
            out: folder for the rows as CSV and Markdown
        """
        from prism.reporting import provenance
        from prism.reporting.tables import show, write
        from prism.tasks.task import Conditions

        chosen, checkpoints, options = find_models(models, task, given)
        if not checkpoints:
            raise ValueError("name at least one model")
        conditions = Conditions.here(device, batch, workers)
        splits = chosen.open_data(checkpoints, data, (split or chosen.split).split(","), limit, options)
        subjects = chosen.subjects(checkpoints, next(iter(splits.values())), options)
        with work_of_all(conditions) as progress:
            rows = chosen.evaluate(subjects, splits, conditions, progress)
        if conditions.is_first:
            show(chosen.shown(rows), f"{chosen.models} on {data}")
            if out:
                stem = out / ("accuracy" if chosen.name == "classification" else chosen.name)
                write(rows, stem, f"`{provenance.command()}`")
                print(f"wrote {stem}.csv and {stem}.md")

    parse(evaluate, words, "eval")
