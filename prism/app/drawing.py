"""An explanation as HTML: bars, slot maps, prototypes and a curve. Every picture is inside the page.

Colours of text and lines are the page's own, so that it reads on a light and on a dark screen.
"""

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
import torch
from matplotlib.colors import to_hex
from PIL import Image, ImageDraw
from torch import Tensor

from prism.app.explanation import Answer, Choice, Explanation, Recalled, StageView
from prism.app.intake import to_picture, to_url
from prism.app.samples import Examples
from prism.reporting.figures import COLOURS
from prism.studies.prototypes import Region
from prism.studies.slots import PALETTE, painted

MAP = 128  # pixels of a slot map: a line of one pixel is thin there
EXAMPLE = 56  # pixels of a prototype's example
PROTOTYPES = 4  # of a stage, those of the largest slots


def results(found: Explanation, shown: Examples | None, truth: str = "") -> str:
    """The right side of the page; `truth` marks the right class where it is known."""
    sections = [
        ("What is it?", _hint(found, truth), _answers(found, truth)),
        (
            "Slots, step by step",
            "Each stage repeats its step until its halting unit says enough: the filled dots. A colour is a slot and "
            "the positions that it won. Beside them, what the memory recalled for the largest slots in the last step"
            + (", with other pictures in which the same prototype was recalled for the framed part." if shown else "."),
            _stages(found, shown),
        ),
        (
            "Recovery",
            "How close the features of the hidden picture come to those of the whole one, after each step: 1 is the "
            "same. The vertical ticks are where the stage halts.",
            recovery(found.recovery, [len(stage.occluded) for stage in found.stages])
            if found.recovery
            else '<p class="none">Hide something to see it.</p>',
        ),
    ]
    return "".join(
        f"<section><h3>{escape(title)}</h3><p>{escape(text)}</p>{body}</section>" for title, text, body in sections
    )


def veil(hidden: Tensor, colour: Tensor) -> str:
    """What is hidden, in its colour, on nothing: to lie over the picture."""
    layer = torch.cat([colour.view(3, 1, 1).expand(3, *hidden.shape), hidden[None]])
    return to_url(to_picture(layer))


# ---- answers


def _hint(found: Explanation, truth: str) -> str:
    share = float(found.pair.hidden.float().mean())
    hidden = f"{share:.0%} of the picture is hidden." if share else "Nothing is hidden yet: paint over the picture."
    return f"{hidden} It shows: {truth}." if truth else hidden


def _answers(found: Explanation, truth: str) -> str:
    pictures = [to_url(to_picture(image)) for image in (found.pair.clean, found.pair.occluded)]
    return f'<div class="answers">{"".join(_answer(answer, pictures, truth) for answer in found.answers)}</div>'


def _answer(answer: Answer, pictures: list[str], truth: str) -> str:
    halves = zip(("whole", "hidden"), pictures, (answer.clean, answer.occluded), strict=True)
    columns = "".join(
        f'<figure><figcaption><img src="{picture}" alt="{word} picture"> {word}</figcaption>'
        f"<ol>{_bars(choices, truth)}</ol></figure>"
        for word, picture, choices in halves
    )
    return f'<div class="answer"><h4>{escape(answer.name)}</h4><div class="pair">{columns}</div></div>'


def _bars(choices: Sequence[Choice], truth: str) -> str:
    return "".join(
        f'<li{" class=right" if name == truth else ""}><span class="bar" style="width:{100 * probability:.1f}%"></span>'
        f'<span class="name">{escape(name)}</span><span class="share">{probability:.0%}</span></li>'
        for name, probability in choices
    )


# ---- slots and prototypes


def _stages(found: Explanation, shown: Examples | None) -> str:
    slider = (
        f'<label class="step">Step <input type="range" min="1" max="{found.max_steps}" value="{found.max_steps}">'
        f"<output>{found.max_steps}</output></label>"
    )
    pixels = [np.asarray(to_picture(image)) for image in (found.pair.clean, found.pair.occluded)]
    rows = "".join(
        _stage(number, stage, pixels, found.max_steps, shown) for number, stage in enumerate(found.stages, start=1)
    )
    return f'{slider}<div class="stages">{rows}</div>'


def _stage(number: int, stage: StageView, pixels: list[np.ndarray], most: int, shown: Examples | None) -> str:
    height, width = stage.clean[0].shape
    halves = zip(("whole", "hidden"), (stage.clean, stage.occluded), pixels, strict=True)
    maps = "".join(
        f"<figure>{_maps(steps, seen)}<figcaption>{_dots(len(steps), most)} {word}</figcaption></figure>"
        for word, steps, seen in halves
    )
    return (
        f'<div class="stage"><h4>Stage {number}<small>{height} &times; {width} positions</small></h4>'
        f'<div class="maps">{maps}</div><div class="recalled">{_recalled(number, stage.recalled, shown)}</div></div>'
    )


def _dots(steps: int, most: int) -> str:
    most = max(steps, most)
    return (
        f'<span class="dots" title="{steps} of {most} steps" aria-label="{steps} of {most} steps">'
        f"{'●' * steps}{'○' * (most - steps)}</span>"
    )


def _maps(steps: Iterable[np.ndarray], pixels: np.ndarray) -> str:
    return "".join(
        f'<img data-step="{step}" alt="slots after step {step}" src="{to_url(slot_map(winners, pixels))}">'
        for step, winners in enumerate(steps, start=1)
    )


def slot_map(winners: np.ndarray, pixels: np.ndarray) -> Image.Image:
    """Of winning slots (h, w) over a picture (S, S, 3)."""
    fine = np.asarray(Image.fromarray(pixels).resize((MAP, MAP), Image.Resampling.BOX))
    return Image.fromarray((255 * painted(winners, fine)).astype(np.uint8))


def _recalled(stage: int, recalled: list[Recalled] | None, shown: Examples | None) -> str:
    """A prototype a figure, with the colours of the slots that recalled it."""
    if recalled is None:
        return '<p class="none">No prototypes: the memory is not asked.</p>'
    slots: dict[int, list[Recalled]] = {}
    for each in recalled:
        slots.setdefault(each.code, []).append(each)
    shares = {code: sum(each.share for each in own) for code, own in slots.items()}
    return "".join(
        f"<figure>{_examples(stage, code, shown)}<figcaption>{''.join(_chip(each.slot) for each in slots[code])}"
        f"<span>prototype {code}<small>{shares[code]:.0%}</small></span></figcaption></figure>"
        for code in sorted(shares, key=lambda code: -shares[code])[:PROTOTYPES]
    )


def _chip(slot: int) -> str:
    return f'<i style="background:{to_hex(PALETTE[slot % len(PALETTE)])}"></i>'


def _examples(stage: int, code: int, shown: Examples | None) -> str:
    if shown is None:
        return ""
    prototype = shown.prototypes[stage - 1].get(code)
    if prototype is None:
        return '<p class="none">in no example</p>'
    url = to_url(strip(shown.pictures, prototype.regions), "JPEG")
    return f'<img src="{url}" alt="examples of prototype {code}">'


def strip(pictures: Tensor, regions: Sequence[Region]) -> Image.Image:
    """The pictures of the regions side by side, each darkened but for its region, which has a frame."""
    sheet = Image.new("RGB", ((EXAMPLE + 2) * len(regions) - 2, EXAMPLE), "grey")
    scale = EXAMPLE / pictures.shape[-1]
    for place, (image, box, _) in enumerate(regions):
        picture = to_picture(pictures[image]).resize((EXAMPLE, EXAMPLE), Image.Resampling.BILINEAR)
        left, top, right, bottom = (round(scale * edge) for edge in box)
        light = Image.new("L", picture.size, 110)
        light.paste(255, (left, top, right, bottom))
        picture = Image.composite(picture, Image.new("RGB", picture.size), light)
        ImageDraw.Draw(picture).rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=COLOURS[4])
        sheet.paste(picture, (place * (EXAMPLE + 2), 0))
    return sheet


# ---- recovery

WIDTH, HEIGHT = 560, 230
LEFT, RIGHT, TOP, BOTTOM = 72, 90, 14, 46  # margins, with room for words


def recovery(curves: Sequence[Sequence[float]], halted: Sequence[int]) -> str:
    """Cosine by step as SVG, a line a stage; a tick where the stage really halts."""
    steps = max(map(len, curves))
    low = min(0.9, np.floor(10 * min(map(min, curves))) / 10)
    across = (WIDTH - LEFT - RIGHT) / max(1, steps - 1)

    def x(step: float) -> float:
        return LEFT + (step - 1) * across

    def y(cosine: float) -> float:
        return TOP + (1 - cosine) / (1 - low) * (HEIGHT - TOP - BOTTOM)

    grid = [
        f'<line x1="{LEFT}" x2="{x(steps):.1f}" y1="{y(at):.1f}" y2="{y(at):.1f}" class="grid"/>'
        f'<text x="{LEFT - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{at:.2f}</text>'
        for at in np.linspace(low, 1, 5)
    ]
    ticks = [
        f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step}</text>'
        for step in range(1, steps + 1)
    ]
    ends = _apart([y(curve[-1]) for curve in curves], 18)
    lines = []
    for number, (curve, stop, end) in enumerate(zip(curves, halted, ends, strict=True)):
        points = " ".join(f"{x(step):.1f},{y(cosine):.1f}" for step, cosine in enumerate(curve, start=1))
        stop = min(stop, len(curve))
        tick = (
            f'x1="{x(stop):.1f}" x2="{x(stop):.1f}" y1="{y(curve[stop - 1]) - 7:.1f}" y2="{y(curve[stop - 1]) + 7:.1f}"'
        )
        lines.append(
            f'<g style="--line:{COLOURS[number % len(COLOURS)]}"><polyline points="{points}"/><line {tick}/>'
            f'<text x="{x(steps) + 10:.1f}" y="{end + 4:.1f}">stage {number + 1}</text></g>'
        )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    words = (
        f'<text x="{x((1 + steps) / 2):.1f}" y="{HEIGHT - 4}" text-anchor="middle">steps</text>'
        f'<text transform="rotate(-90)" x="{-middle:.1f}" y="16" text-anchor="middle">cosine to the whole</text>'
    )
    body = "".join([*grid, *ticks, *lines, words])
    label = "similarity to the whole picture, step by step"
    return f'<svg class="recovery" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{body}</svg>'


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights, moved as little down as keeps them a gap apart: labels at the ends of lines."""
    placed: dict[int, float] = {}
    lowest = -np.inf
    for index in np.argsort(heights).tolist():
        lowest = placed[index] = max(heights[index], lowest + gap)
    return [placed[index] for index in range(len(heights))]
