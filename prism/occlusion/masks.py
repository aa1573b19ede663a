"""What is hidden: masks as functions of size, strength and a generator. Bool (H, W), True = hidden.

The sides of blocks are given for images of 224 px and scale with the image: 112 is half of it.
"""

import numpy as np
import torch
from torch import Tensor

CELLS = 14  # along the short side: 16 px at 224
REFERENCE = 224
LATTICE = 8  # px, the patches of PRISM's second stage


def mask_generator(index: int, seed: int) -> torch.Generator:
    """The randomness of an image's mask: of its index and the seed, and of nothing else.

    Hence every model sees the same pixels, in any batch, any order and on any number of workers.
    """
    state = np.random.SeedSequence([seed, index]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 | int(state[1]) >> 1)


def patch_mask(size: tuple[int, int], ratio: float, generator: torch.Generator) -> Tensor:
    """PatchMask: exactly round(ratio * cells) cells of a grid are hidden, 14 along the short side."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must lie between 0 and 1, got {ratio}")
    short = min(size)
    cells = [round(min(CELLS, short) * side / short) for side in size]
    chosen = torch.zeros(cells[0] * cells[1], dtype=torch.bool)
    chosen[torch.randperm(len(chosen), generator=generator)[: round(ratio * len(chosen))]] = True
    rows, columns = (_cell_of_pixels(side, n) for side, n in zip(size, cells, strict=True))
    return chosen.view(cells[0], cells[1])[rows][:, columns]


def block_mask(size: tuple[int, int], side: float, generator: torch.Generator) -> Tensor:
    """BlockMask: one block of side / 224 of the image's height and width, anywhere, is hidden."""
    if not 0 <= side <= REFERENCE:
        raise ValueError(f"side must lie between 0 and {REFERENCE}, the image it is given for; got {side}")
    height, width = (round(side * length / REFERENCE) for length in size)
    top, left = (
        int(torch.randint(length - part + 1, (), generator=generator))
        for length, part in zip(size, (height, width), strict=True)
    )
    mask = torch.zeros(size, dtype=torch.bool)
    mask[top : top + height, left : left + width] = True
    return mask


def only_one_mask(size: tuple[int, int], side: float, generator: torch.Generator) -> Tensor:
    """OnlyOne: everything but one block is hidden."""
    return ~block_mask(size, side, generator)


def scattered_mask(size: tuple[int, int], generator: torch.Generator | None = None) -> Tensor:
    """For training: a share of 5 to 95 % of the cells of a grid of 2 to 16 per side, shifted at random.

    One cell always shows, and of a coarse grid a small share may be none. Coarse grids hide blocks, fine ones scatter
    holes, so that no one way of hiding is learned by heart. Every other mask keeps to a lattice of LATTICE px, so that
    patches are hidden or shown whole: holes that always cut through patches teach a network to go by their edges.
    Without a generator it draws from torch's own, which a training stream seeds for each image.
    """
    step = LATTICE if torch.rand((), generator=generator) < 0.5 else 1
    sides = [-(-side // step) for side in size]
    cells = min(int(torch.randint(2, 17, (), generator=generator)), *sides)
    share = 0.05 + 0.9 * float(torch.rand((), generator=generator))
    count = min(round(share * cells**2), cells**2 - 1)
    chosen = torch.zeros(cells**2, dtype=torch.bool)
    chosen[torch.randperm(cells**2, generator=generator)[:count]] = True
    rows, columns = (_cell_of_pixels(side, cells) for side in sides)
    shift = [int(torch.randint(side, (), generator=generator)) for side in sides]
    mask = chosen.view(cells, cells)[rows][:, columns].roll(shift, (0, 1))
    return mask.repeat_interleave(step, 0).repeat_interleave(step, 1)[: size[0], : size[1]]


def instance_mask(mask: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """M30 and M50: a block over an object that hides exactly round(share * area) of the object's own pixels.

    The block is as wide as the share asks of the object's box, and wider where that holds too few of its pixels.
    From a random row it grows down, then up; its last row is filled only as far as needed.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    area = int(mask.sum())
    if not area:
        raise ValueError("the instance has no pixels")
    missing = round(share * area)
    hidden = torch.zeros_like(mask)
    left, right = _columns(mask, share, missing, generator)
    rows = mask.any(1).nonzero().squeeze(1).tolist()
    start = int(torch.randint(rows[0], rows[-1] + 1, (), generator=generator))
    for row in [*range(start, rows[-1] + 1), *range(start - 1, rows[0] - 1, -1)]:
        if not missing:
            break
        own = mask[row, left:right].nonzero().squeeze(1)
        end = right if len(own) <= missing else left + int(own[missing - 1]) + 1
        hidden[row, left:end] = True
        missing -= min(len(own), missing)
    return hidden


def _columns(mask: Tensor, share: float, needed: int, generator: torch.Generator) -> tuple[int, int]:
    """The block's columns, [left, right): wide enough to hold `needed` pixels of the object."""
    per_column = mask.sum(0)
    occupied = per_column.nonzero().squeeze(1)
    first, last = int(occupied[0]), int(occupied[-1]) + 1
    width = max(1, round(share**0.5 * (last - first)))
    left = int(torch.randint(first, last - width + 1, (), generator=generator))
    right = left + width
    while int(per_column[left:right].sum()) < needed:
        left, right = max(first, left - 1), min(last, right + 1)
    return left, right


def _cell_of_pixels(side: int, cells: int) -> Tensor:
    """The cell of each pixel of a side, cells bounded by round(i * side / cells): (side,)."""
    borders = torch.tensor([round(i * side / cells) for i in range(cells + 1)])
    return torch.arange(cells).repeat_interleave(borders.diff())
