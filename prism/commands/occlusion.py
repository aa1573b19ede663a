"""prism occlusion."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from prism.commands.parsing import find_models, options_class, parse, work_of_all
from prism.model.checks import Count, Workers
from prism.tasks.parsing import numbers, whole_numbers


def run(words: Sequence[str]) -> None:
    Options = options_class("occlusion")

    def occlusion(
        models: Positional[list[str]],
        data: str,
        given: Options,  # pyright: ignore[reportInvalidTypeForm]
        task: str | None = None,
        split: str = "",
        out: Path | None = None,
        settings: str = "",
        full: bool = False,
        fills: str = "mean",
        seeds: str = "0",
        batch: Count | None = None,
        workers: Workers = 2,
        limit: Count | None = None,
        device: str = "auto",
    ) -> None:
        """How robust are models to occlusion? Several are compared on the same pixels.

        For classifiers, accuracy with patches or a block hidden; for detectors, AP with a share of two objects per
        image hidden (M30, M50); for segmenters, mIoU with 30 % of patches hidden.
        `accelerate launch -m prism.cli occlusion ...` shares the images among processes; the result is the same.

        Args:
            models: NAME of a PRISM variant or timm model, NAME=FILE,... with weights of training runs, or
                FILE.safetensors
            data: scenes (generated), or a folder: with one folder of images per class; with COCO JSON; or in
                the layout of ADE20K, of VOC, or of images/SPLIT beside masks/SPLIT
            task: by default the task of the weights, and classification for a name without weights
            split: split of the data; by default val, and clean for classified scenes
            out: folder for CSVs, tables, figures and report.html; by default runs/occlusion or runs/occlusion-TASK
            settings: masks and their strengths, comma-separated, such as PatchMask0.6,BlockMask112 or M30; by default
                the paper's
            full: whole curves instead of the paper's settings
            fills: what hidden pixels show, comma-separated: mean, black, grey, noise, blur, texture, or all
            seeds: mask seeds, comma-separated
            batch: images at a time; by default 64, for detection and segmentation 8
            workers: processes that read images
            limit: at most this many images, spread over the data; for scenes 1000 by default, 500 for detection
            device: auto, cpu, cuda, ...
        """
        from prism.occlusion.settings import parse_settings
        from prism.reporting import provenance
        from prism.reporting.files import write_text
        from prism.reporting.pages import as_markdown, publish
        from prism.reporting.tables import show, write
        from prism.tasks.task import Conditions

        chosen, checkpoints, options = find_models(models, task, given)
        shares = given.detection.shares  # refused for any other task
        if sum(map(bool, (settings, shares, full))) > 1:
            raise ValueError("--settings, --shares and --full exclude one another")
        if shares:
            settings = ",".join(f"M{round(100 * share, 10):g}" for share in numbers(shares, 0.001, 1))
        hidden = parse_settings(settings) if settings else chosen.curves if full else chosen.settings
        if not checkpoints and not given.detection.write:
            raise ValueError("name at least one model")
        out = out or Path("runs/occlusion" if chosen.name == "classification" else f"runs/occlusion-{chosen.name}")
        fillings, numbered = _fills(fills), whole_numbers(seeds, least=0)
        conditions = Conditions.here(device, batch, workers)._replace(settings=hidden, fills=fillings, seeds=numbered)
        [images] = chosen.open_data(checkpoints, data, [split or chosen.split], limit, options).values()
        subjects = chosen.subjects(checkpoints, images, options)
        with work_of_all(conditions) as progress:
            tables, sections = chosen.occlusion(subjects, images, conditions, out, options, progress), []
            if conditions.is_first:
                sections = publish(tables, chosen.report, out, chosen.title)
        if sections:
            shown = [section for section in sections if section.heading != "All rows"]
            write_text(out / "report.md", as_markdown(shown, out, provenance.command()))
            main: Any = sections[0].content
            write(main, out / "table", f"{sections[0].text}\n\n`{provenance.command()}`")
            show(main, f"{chosen.headline} on {data}, per cent, {fillings[0]} fill")
            if folders := tables.get("folders"):
                show(folders, f"COCO folders in {out}, and what is hidden there")
            print(f"wrote {out / 'report.html'}")

    parse(occlusion, words, "occlusion")


def _fills(text: str) -> list[Any]:
    from prism.occlusion.fills import FILLS

    kinds = list(FILLS) if text == "all" else text.split(",")
    if unknown := [kind for kind in kinds if kind not in FILLS]:
        raise ValueError(f"fills are {', '.join(FILLS)}, got {unknown[0]!r}")
    return kinds
