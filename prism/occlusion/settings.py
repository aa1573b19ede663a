"""The registry of masks, and settings: a mask and how much it hides.

A new mask is a function of (size, strength, generator) and one call of `register`; `--settings NAME0.5` selects it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prism.occlusion.fills import Fill
from prism.occlusion.masks import REFERENCE, block_mask, only_one_mask, patch_mask
from prism.reporting.tables import Rows, column


class Mask(NamedTuple):
    """A way of hiding. Strength is in its own unit, such as a share of cells or a side for 224 px."""

    name: str
    draw: Callable[[tuple[int, int], float, torch.Generator], Tensor] | None  # None: it needs objects to lie over
    label: str  # of the axis of a figure
    hidden: Callable[[float], float]  # the share that a strength hides
    words: str = "with {share} of the image hidden"  # of a setting, in a sentence


MASKS: dict[str, Mask] = {}


def register(mask: Mask) -> Mask:
    if not re.fullmatch(r"[A-Za-z][A-Za-z_]*", mask.name) or mask.name == "clean":
        raise ValueError(f"a mask needs a name of letters that is not 'clean', got {mask.name!r}")
    MASKS[mask.name] = mask
    return mask


def _area(side: float) -> float:
    return (side / REFERENCE) ** 2


register(Mask("PatchMask", patch_mask, "share of cells hidden", lambda ratio: ratio, "with {share} of patches hidden"))
register(Mask("BlockMask", block_mask, "share of the image hidden", _area, "behind a {strength} px block"))
REST, OBJECTS = "with only a {strength} px block left", "with {share} of two objects per image hidden"
register(Mask("OnlyOne", only_one_mask, "share of the image hidden", lambda side: 1 - _area(side), REST))
register(Mask("M", None, "share of two objects per image hidden", lambda per_cent: per_cent / 100, OBJECTS))


class Setting(NamedTuple):
    """A mask by its name and its strength; or "clean", where nothing is hidden."""

    kind: str
    strength: float = 0

    @classmethod
    def parse(cls, name: str) -> "Setting":
        """The setting that a table calls this, such as PatchMask0.6."""
        kind, strength = re.fullmatch(r"([A-Za-z_]*)(.*)", name).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if (kind, strength) == ("clean", ""):
            return CLEAN
        try:
            return cls(_known(kind).name, float(strength))
        except ValueError:
            names = ", ".join(MASKS)
            raise ValueError(f"a setting is clean or a mask and its strength, such as PatchMask0.6; masks are {names}; "
                             f"got {name!r}") from None  # fmt: skip

    @property
    def name(self) -> str:
        return self.kind if self.kind == "clean" else f"{self.kind}{self.strength:g}"

    @property
    def hidden_share(self) -> float:
        return 0.0 if self.kind == "clean" else _known(self.kind).hidden(self.strength)

    @property
    def words(self) -> str:
        """As a sentence says it, such as "behind a 112 px block"."""
        share = f"{100 * self.hidden_share:.0f} %"
        return _known(self.kind).words.format(share=share, strength=f"{self.strength:g}")

    def mask(self, size: tuple[int, int], generator: torch.Generator) -> Tensor:
        """(H, W) of bool, True where hidden."""
        if self.kind == "clean":
            return torch.zeros(size, dtype=torch.bool)
        if (draw := _known(self.kind).draw) is None:
            raise ValueError(f"{self.name} lies over objects: it is only for detection")
        return draw(size, self.strength, generator)


def _known(kind: str) -> Mask:
    if kind not in MASKS:
        raise ValueError(f"unknown mask {kind!r}; choose from {', '.join(MASKS)}")
    return MASKS[kind]


CLEAN = Setting("clean")
PAPER_SETTINGS = (
    CLEAN,
    Setting("PatchMask", 0.6),
    Setting("PatchMask", 0.8),
    Setting("BlockMask", 56),
    Setting("BlockMask", 112),
    Setting("OnlyOne", 112),
    Setting("OnlyOne", 56),
)
SIDES = (28, 56, 84, 112, 140, 168, 196)
CURVES = (
    CLEAN,
    *(Setting("PatchMask", round(0.1 * tenth, 1)) for tenth in range(1, 10)),
    *(Setting("BlockMask", side) for side in SIDES),
    *(Setting("OnlyOne", side) for side in reversed(SIDES)),
)


def parse_settings(names: str) -> tuple[Setting, ...]:
    """Comma-separated; clean images are always measured too, first."""
    return tuple(dict.fromkeys([CLEAN, *(Setting.parse(name.strip()) for name in names.split(","))]))


class Job(NamedTuple):
    """One pass over the images."""

    setting: Setting
    filling: Fill
    seed: int

    @property
    def name(self) -> str:
        return f"{self.setting.name}-{self.filling}-{self.seed}"

    @property
    def columns(self) -> dict[str, object]:
        """As rows name it; neither fill nor seed changes a clean image."""
        if self.setting == CLEAN:
            return {"setting": CLEAN.name, "fill": "", "mask seed": ""}
        return {"setting": self.setting.name, "fill": self.filling, "mask seed": self.seed}


def kept(scores: Mapping[str, tuple[float, float]], score: str, setting: Setting) -> str:
    """What models keep of their clean score, in one sentence; scores are pairs of clean and occluded, by model."""
    shares = [(name, f"{100 * occluded / clean:.0f} %") for name, (clean, occluded) in scores.items() if clean > 0]
    if not shares or setting == CLEAN:
        return ""
    (name, share), *others = shares
    rest = "".join(f", {name} {share}" for name, share in others)
    return f"{name} keeps {share} of its {score} {setting.words}{rest}."


def fills_of(rows: Rows) -> list[str]:
    """Those that a table was measured with; the first is the headline's."""
    return [filling for filling in column(rows, "fill") if filling] or ["mean"]


def of_fill(rows: Rows, filling: str) -> Rows:
    """Those of one fill, and of clean images, which have none."""
    return [row for row in rows if not row["fill"] or row["fill"] == filling]


def jobs(settings: Sequence[Setting], fills: Sequence[Fill], seeds: Sequence[int]) -> Iterator[Job]:
    """All that is measured; clean once."""
    for setting in settings:
        for filling in fills[:1] if setting == CLEAN else fills:
            for seed in seeds[:1] if setting == CLEAN else seeds:
                yield Job(setting, filling, seed)
