"""What do prototypes stand for? For each code of the memory, the regions of images whose slots recalled it.

B images, T steps, K slots, (h, w) cells of a stage's grid.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from prism.analysis.slots import effective_number, holding
from prism.model.backbone import Prism
from prism.model.stage import StageTrace

AT_ONCE = 16  # images whose slot maps are in memory together


class Region(NamedTuple):
    """A part of an image that a slot won when it recalled the code."""

    image: int  # its place among the images
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels, the last two the first ones outside
    strength: float  # the largest share of a cell that the slot won there


class Prototype(NamedTuple):
    """A code and the regions most typical of it, strongest first, at most one of each image."""

    uses: int  # how often it was recalled, over all images, steps and slots that held something
    regions: list[Region]


@torch.inference_mode()
def atlas(network: Prism, images: Tensor, per_code: int) -> list[dict[int, Prototype]]:
    """For each stage, the codes that were recalled and their regions; images are normalised, (B, 3, H, W)."""
    if network.memory != "vq":
        raise ValueError(f"this PRISM has no prototypes: its memory is {network.memory!r}, not 'vq'")
    size = images.shape[-2], images.shape[-1]
    found: list[dict[int, list[Region]]] = [defaultdict(list) for _ in network.stages]
    for first in range(0, len(images), AT_ONCE):
        trace = network.forward_traced(images[first : first + AT_ONCE]).trace
        for stage, regions in zip(trace.stages, found, strict=True):
            for code, region in _regions(stage, first, size):
                regions[code].append(region)
    return [{code: Prototype(len(own), _typical(own, per_code)) for code, own in sorted(f.items())} for f in found]


def usage(prototypes: dict[int, Prototype]) -> dict[str, Any]:
    """How a stage uses its codebook; the perplexity is the number of codes that would, used evenly, be as mixed."""
    uses = torch.tensor([prototype.uses for prototype in prototypes.values()]).double()
    shares = uses / uses.sum()
    return {
        "recalled": len(prototypes),
        "uses": int(uses.sum()),
        "perplexity": effective_number(shares),
        "largest share": float(shares.max()),
    }


def _regions(stage: StageTrace, first: int, size: tuple[int, int]) -> list[tuple[int, Region]]:
    """Every use of a code and where: the step's slot map around its peak. What an empty slot recalls is no use."""
    assert stage.codes is not None
    assert stage.slot_maps is not None
    held = holding(stage.slot_maps)  # (B, T, K), False in steps not taken
    maps, codes = stage.slot_maps[held], stage.codes[held].tolist()
    owners, strengths = (first + held.nonzero()[:, 0]).tolist(), maps.amax((-2, -1)).tolist()
    uses = zip(codes, owners, _boxes(around_peak(maps), size), strengths, strict=True)
    return [(code, Region(image, box, strength)) for code, image, box, strength in uses]


def around_peak(maps: Tensor) -> Tensor:
    """The connected cells around the highest one that have at least half of its share: (n, h, w) -> bool."""
    flat = maps.flatten(1)
    strong = maps >= maps.amax((-2, -1), keepdim=True) / 2
    reached = F.one_hot(flat.argmax(1), flat.shape[1]).view_as(maps).float()
    for _ in range(flat.shape[1]):
        spread = F.max_pool2d(reached[:, None], 3, stride=1, padding=1)[:, 0] * strong
        if spread.equal(reached):
            break
        reached = spread
    return reached.bool()


def _boxes(masks: Tensor, size: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Tight boxes around cells (n, h, w), in pixels of the image."""
    edges = []
    for axis, pixels in ((-2, size[1]), (-1, size[0])):  # columns first, as boxes are written
        occupied = masks.any(axis).int()  # (n, cells)
        cells = occupied.shape[1]
        start, end = occupied.argmax(1), cells - occupied.flip(1).argmax(1)
        edges.append((start * pixels // cells, -(-end * pixels // cells)))
    (left, right), (top, bottom) = edges
    return [tuple(box) for box in torch.stack([left, top, right, bottom], dim=1).tolist()]  # pyright: ignore


def _typical(regions: list[Region], count: int) -> list[Region]:
    best: dict[int, Region] = {}
    for region in sorted(regions, key=lambda region: -region.strength):
        best.setdefault(region.image, region)
    return list(best.values())[:count]
