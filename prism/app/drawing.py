"""An explanation as HTML: bars, slot maps, prototypes and a curve. Every image is inside the page.

Colours of text and lines are the page's own, so that it reads on a light and on a dark screen.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import Environment
from matplotlib.colors import to_hex
from PIL import Image, ImageDraw
from torch import Tensor

from prism.analysis.drawing import PALETTE, painted, spotlit
from prism.analysis.prototypes import Region
from prism.analysis.slots import Recalled
from prism.app.explanation import Explanation, StageResult
from prism.app.intake import to_image, to_url
from prism.app.samples import Examples
from prism.reporting.figures import COLOURS

ASSETS = Path(__file__).parent / "assets"
MAP = 128  # pixels of a slot map: a line of one pixel is thin there
EXAMPLE = 56  # pixels of a prototype's example
DARK = 110 / 255  # brightness outside its region
PROTOTYPES = 4  # per stage, those of the largest slots
WIDTH, HEIGHT = 560, 230  # of the curve
LEFT, RIGHT, TOP, BOTTOM = 72, 90, 14, 46  # margins, with room for words
TEMPLATE = Environment(autoescape=True).from_string((ASSETS / "results.html").read_text())


def results(found: Explanation, examples: Examples | None, truth: str = "") -> str:
    """The right side of the page; `truth` marks the right class where it is known."""
    share = float(found.pair.hidden.float().mean())
    hint = f"{share:.0%} of the image is hidden." if share else "Nothing is hidden yet: paint over the image."
    images = [to_image(image) for image in (found.pair.clean, found.pair.occluded)]
    pixels = [np.asarray(image) for image in images]
    return TEMPLATE.render(
        hint=f"{hint} It shows: {truth}." if truth else hint,
        truth=truth,
        answers=found.answers,
        images=[to_url(image) for image in images],
        max_steps=found.max_steps,
        with_examples=examples is not None,
        stages=[_stage(number, stage, pixels, examples) for number, stage in enumerate(found.stages)],
        **(curves(found.recovery, [len(stage.occluded) for stage in found.stages]) if found.recovery else {}),
    )


def veil(hidden: Tensor, colour: Tensor) -> str:
    """What is hidden, in its colour, on nothing: to lie over the image."""
    layer = torch.cat([colour.view(3, 1, 1).expand(3, *hidden.shape), hidden[None]])
    return to_url(to_image(layer))


# ---- slots and prototypes


def _stage(number: int, stage: StageResult, pixels: list[np.ndarray], examples: Examples | None) -> dict[str, Any]:
    height, width = stage.clean[0].shape
    clean, occluded = (
        [to_url(slot_map(winners, seen)) for winners in steps]
        for steps, seen in zip((stage.clean, stage.occluded), pixels, strict=True)
    )
    prototypes = None if stage.recalled is None else _prototypes(number, stage.recalled, examples)
    return dict(height=height, width=width, clean=clean, occluded=occluded, prototypes=prototypes)


def slot_map(winners: np.ndarray, pixels: np.ndarray) -> Image.Image:
    """Of winning slots (h, w) over an image (S, S, 3)."""
    fine = np.asarray(Image.fromarray(pixels).resize((MAP, MAP), Image.Resampling.BOX))
    return Image.fromarray((255 * painted(winners, fine)).astype(np.uint8))


def _prototypes(stage: int, recalled: list[Recalled], examples: Examples | None) -> list[dict[str, Any]]:
    """Those of the largest slots, with the colours of the slots that recalled them."""
    slots: dict[int, list[Recalled]] = {}
    for each in recalled:
        slots.setdefault(each.code, []).append(each)
    shares = {code: sum(each.share for each in own) for code, own in slots.items()}
    return [
        dict(
            code=code,
            share=shares[code],
            colours=[to_hex(PALETTE[each.slot % len(PALETTE)]) for each in slots[code]],
            examples=_examples(stage, code, examples),
        )
        for code in sorted(shares, key=lambda code: -shares[code])[:PROTOTYPES]
    ]


def _examples(stage: int, code: int, examples: Examples | None) -> str:
    prototype = examples.prototypes[stage].get(code) if examples else None
    return to_url(strip(examples.images, prototype.regions), "JPEG") if examples and prototype else ""


def strip(images: Tensor, regions: Sequence[Region]) -> Image.Image:
    """The images of the regions side by side, each darkened but for its region, which has a frame."""
    sheet = Image.new("RGB", ((EXAMPLE + 2) * len(regions) - 2, EXAMPLE), "grey")
    scale = EXAMPLE / images.shape[-1]
    for place, (number, region, _) in enumerate(regions):
        small = to_image(images[number]).resize((EXAMPLE, EXAMPLE), Image.Resampling.BILINEAR)
        left, top, right, bottom = box = [round(scale * edge) for edge in region]
        lit = Image.fromarray(spotlit(np.asarray(small), box, DARK))
        ImageDraw.Draw(lit).rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=COLOURS[4])
        sheet.paste(lit, (place * (EXAMPLE + 2), 0))
    return sheet


# ---- recovery


def curves(cosines: Sequence[Sequence[float]], halted: Sequence[int]) -> dict[str, Any]:
    """Where to draw cosines by step, one line per stage, and where each stage really halts."""
    steps = max(map(len, cosines))
    low = min(0.9, np.floor(10 * min(map(min, cosines))) / 10)
    x = np.round(np.linspace(LEFT, WIDTH - RIGHT, max(2, steps)), 1).tolist()

    def y(cosine: float) -> float:
        return round(float(TOP + (1 - cosine) / (1 - low) * (HEIGHT - TOP - BOTTOM)), 1)

    labels = _apart([y(curve[-1]) for curve in cosines], 18)
    lines = [
        dict(
            colour=COLOURS[number % len(COLOURS)],
            points=" ".join(f"{at},{y(cosine)}" for at, cosine in zip(x, curve, strict=False)),
            halt=(x[min(stop, len(curve)) - 1], y(curve[min(stop, len(curve)) - 1])),
            label=labels[number],
        )
        for number, (curve, stop) in enumerate(zip(cosines, halted, strict=True))
    ]
    plot = dict(width=WIDTH, height=HEIGHT, left=LEFT, right=x[steps - 1], top=TOP, bottom=HEIGHT - BOTTOM)
    grid = [(y(at), f"{at:.2f}") for at in np.linspace(low, 1, 5)]
    return dict(curves=lines, plot=plot | dict(grid=grid, ticks=[(x[step], step + 1) for step in range(steps)]))


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights, moved as little down as keeps them a gap apart: labels at the ends of lines."""
    placed: dict[int, float] = {}
    lowest = -np.inf
    for index in np.argsort(heights).tolist():
        lowest = placed[index] = max(heights[index], lowest + gap)
    return [placed[index] for index in range(len(heights))]
