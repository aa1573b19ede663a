"""An explanation as HTML: bars, slot maps, steps and prototypes. Every image is inside the page.

Colours of text and lines are the page's own, so that it reads on a light and on a dark screen.
K slots, (h, w) positions of a stage's grid.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from contourpy import contour_generator
from jinja2 import Environment, FileSystemLoader
from matplotlib.colors import to_hex
from PIL import Image, ImageDraw
from torch import Tensor

from prism.analysis.drawing import PALETTE, spotlit
from prism.analysis.pairs import Pair
from prism.analysis.prototypes import Region
from prism.analysis.slots import Recalled
from prism.app.explanation import Explanation, StageResult
from prism.app.intake import to_url
from prism.app.networks import Players
from prism.app.samples import Examples
from prism.reporting.figures import COLOURS, pixels

ASSETS = Path(__file__).parent / "assets"
FINE = 56  # points along the side of a slot map
EXAMPLE = 56  # pixels of a prototype's example
DARK = 110 / 255  # brightness outside its region
PROTOTYPES = 4  # per stage, those of the largest slots
SLOT_COLOURS = [to_hex(colour) for colour in PALETTE]
TEMPLATES = Environment(
    loader=FileSystemLoader(ASSETS), autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
)


def results(found: Explanation, players: Players, examples: Examples | None, truth: str) -> str:
    """What the page shows of an image; `truth` marks the right class where it is known."""
    return TEMPLATES.get_template("results.html").render(
        share=float(found.pair.hidden.float().mean()),
        truth=truth,
        doubt="not sure" if players.know_scenes else f"none of the {_in_words(len(players.titles))}",
        images=dict(whole=found.pair.clean, hidden=found.pair.occluded, veil=veil(found.pair)),
        url=lambda image: to_url(Image.fromarray(pixels(image))),
        readings=found.readings,
        costs=_costs(found),
        max_steps=players.network.max_steps,
        fine=10 * FINE,
        with_examples=examples is not None,
        stages=[_stage(number, stage, examples) for number, stage in enumerate(found.stages)],
    )


def veil(pair: Pair) -> Tensor:
    """What is hidden, as it is filled, on nothing: (4, S, S) to lie over the image."""
    return torch.cat([pair.occluded * pair.hidden, pair.hidden[None]])


def _in_words(count: int) -> str:
    return "ten" if count == 10 else str(count)


def _costs(found: Explanation) -> list[tuple[str, float, float, bool]]:
    """Rows of words, multiply-accumulates, their share of the largest, and whether every image costs the same."""
    whole, hidden, _, brief = found.readings
    rows = [(f"PRISM, {each.title}", each.answers[0].macs, False) for each in (whole, hidden, brief)]
    rows += [(f"{answer.network}, always", answer.macs, True) for answer in whole.answers[1:]]
    most = max(macs for _, macs, _ in rows)
    return [(words, macs, macs / most, constant) for words, macs, constant in rows]


# ---- slots and prototypes


def _stage(number: int, stage: StageResult, examples: Examples | None) -> dict[str, Any]:
    codes = {each.slot: each.code for each in stage.recalled or ()}
    return dict(
        grid=stage.whole.shape[-2:],
        maps=[
            ("whole", [list(_shapes(shares, {})) for shares in stage.whole]),
            ("occluded", [list(_shapes(shares, codes)) for shares in stage.hidden]),
        ],
        prototypes=None if stage.recalled is None else _prototypes(number, stage.recalled, examples),
    )


def _shapes(shares: np.ndarray, codes: dict[int, int]) -> Iterator[tuple[str, str, str]]:
    """Outline, colour and words of each slot that won something of (K, h, w)."""
    winner = shares.argmax(0)
    for slot, outline in outlines(shares):
        words = f"slot {slot + 1}: {(winner == slot).mean():.0%} of the image"
        yield (
            outline,
            SLOT_COLOURS[slot % len(SLOT_COLOURS)],
            words + (f", recalls prototype {codes[slot]}" if slot in codes else ""),
        )


def outlines(shares: np.ndarray) -> Iterator[tuple[int, str]]:
    """Where each slot wins, as an SVG path in a square of 10 FINE; (K, h, w) are interpolated between positions."""
    fine = F.interpolate(torch.from_numpy(shares)[None], (FINE, FINE), mode="bilinear")[0].numpy()
    second, first = np.sort(np.pad(fine, ((1, 0), (0, 0), (0, 0))), axis=0)[-2:]  # a slot alone wins against nothing
    at = 10 * np.clip(np.arange(FINE + 2) - 0.5, 0, FINE)
    for slot, own in enumerate(fine):
        margin = own - np.where(own == first, second, first)  # to the strongest other slot
        if (margin <= 0).all():
            continue
        regions: Any = contour_generator(at, at, np.pad(margin, 1, "edge"), fill_type="OuterOffset").filled(0, 2)
        rings = [points[i:j] for points, ends in zip(*regions, strict=True) for i, j in pairwise(ends)]
        yield slot, "".join("M" + " ".join(f"{x:.0f},{y:.0f}" for x, y in ring[:-1]) + "z" for ring in rings)


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
            colours=[SLOT_COLOURS[each.slot % len(SLOT_COLOURS)] for each in slots[code]],
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
        small = Image.fromarray(pixels(images[number])).resize((EXAMPLE, EXAMPLE), Image.Resampling.BILINEAR)
        left, top, right, bottom = box = [round(scale * edge) for edge in region]
        lit = Image.fromarray(spotlit(np.asarray(small), box, DARK))
        ImageDraw.Draw(lit).rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=COLOURS[4])
        sheet.paste(lit, (place * (EXAMPLE + 2), 0))
    return sheet
