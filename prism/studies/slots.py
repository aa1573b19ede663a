"""Slot maps: which slot wins which part of a picture, stage by stage and step by step; whole and with a part hidden."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from timm.data import resolve_data_config
from torch import Tensor, nn

from prism.data.images import read_image
from prism.data.preprocessing import Preprocessing
from prism.data.scenes import render_scene
from prism.model.backbone import Prism
from prism.model.stage import StageTrace
from prism.occlusion.benchmark import Setting
from prism.occlusion.masks import mask_generator
from prism.reporting import tables
from prism.reporting.figures import class_colours, contours
from prism.reporting.figures import pixels as as_pixels
from prism.reporting.tables import Rows
from prism.studies.material import Inapplicable, Material
from prism.studies.pairs import Pairs, as_seen
from prism.studies.study import (
    SKIPPED,
    STAGES,
    Progress,
    Section,
    Study,
    Tables,
    column,
    other_subjects,
    save,
    shown,
    skipped,
)

OCCLUSION = Setting("BlockMask", 112)
PALETTE = class_colours(25)[1:25]  # of slots, RGB in [0, 1]


def picture(path: Path | None, preprocessing: Preprocessing, seed: int) -> np.ndarray:
    """The picture at `path` as the network is shown it, or a generated scene: (size, size, 3) of uint8."""
    if path is None:
        return render_scene(preprocessing.size, seed)
    return as_pixels(preprocessing.unit(read_image(path)))


def draw(model: Prism, pixels: np.ndarray, out: Path, occluded: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Write slots.csv and slots.png into `out`; return the rows of the former.

    With `occluded` also of the picture in which a block is hidden by the mean colour.
    """
    pictures = {"clean": pixels}
    if occluded:
        hidden = OCCLUSION.mask((pixels.shape[0], pixels.shape[1]), mask_generator(0, seed)).numpy()
        mean = [round(255 * part) for part in resolve_data_config(model=model)["mean"]]
        pictures[OCCLUSION.name] = np.where(hidden[..., None], np.array(mean, np.uint8), pixels)
    rows, blocks = [], []
    for setting, image in pictures.items():
        with torch.inference_mode():
            stages = model.eval().forward_traced(normalised(image, model)).trace.stages
        rows += [{"setting": setting} | _row(index, stage) for index, stage in enumerate(stages, start=1)]
        blocks.append(lines(image, stages))
    tables.write(rows, out / "slots", "Steps taken in each stage, weights of their states, and slots in use.")
    sheet(*blocks).savefig(out / "slots.png", dpi=110)
    return rows


def normalised(pixels: np.ndarray, model: nn.Module) -> Tensor:
    """(1, 3, H, W), as the model was trained to see it."""
    cfg = resolve_data_config(model=model)
    unit = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None] / 255
    return (unit - torch.tensor(cfg["mean"]).view(3, 1, 1)) / torch.tensor(cfg["std"]).view(3, 1, 1)


def _row(stage: int, trace: StageTrace) -> dict[str, Any]:
    steps = int(trace.steps[0])
    assert trace.slot_maps is not None
    area = trace.slot_maps[0, steps - 1].mean((-2, -1))  # (K,), the share of the picture that each slot won
    return {
        "stage": stage,
        "grid": "x".join(map(str, trace.slot_maps.shape[-2:])),
        "slots": trace.slot_maps.shape[2],
        "steps": steps,
        "weights": " ".join(f"{w:.2f}" for w in trace.weights[0, :steps]),
        "effective slots": float(torch.special.entr(area).sum().exp()),
        "codes recalled": len(trace.codes[0, :steps].unique()) if trace.codes is not None else None,
    }


def lines(pixels: np.ndarray, stages: Sequence[StageTrace]) -> list["Line"]:
    """A line a stage of the sheet."""
    steps = [int(stage.steps[0]) for stage in stages]
    return [
        Line(
            f"stage {number}: {count} step{'s' * (count > 1)}",
            pixels,
            winners(stage),
            stage.weights[0, :count].tolist(),
        )
        for number, (stage, count) in enumerate(zip(stages, steps, strict=True), start=1)
    ]


class Line(NamedTuple):
    """A row of the sheet: a picture, and what won where in each step."""

    title: str
    pixels: np.ndarray  # (H, W, 3) uint8
    winners: list[np.ndarray]  # (h, w) of slot numbers, one a step
    weights: list[float]  # of the steps' states in the stage's output


def winners(stage: StageTrace) -> list[np.ndarray]:
    """The slot that won most of each position, step by step, of the first image."""
    assert stage.slot_maps is not None
    return [stage.slot_maps[0, step].argmax(0).cpu().numpy() for step in range(int(stage.steps[0]))]


def sheet(*blocks: Sequence[Line]) -> Figure:
    """Blocks of lines side by side."""
    columns = 1 + max(len(line.winners) for block in blocks for line in block)
    drawn = Figure(figsize=(2.2 * columns * len(blocks), 2.4 * len(blocks[0])), layout="constrained")
    parts = drawn.subfigures(1, len(blocks), squeeze=False, wspace=0.03)[0]
    for part, lines in zip(parts, blocks, strict=True):
        for axes, line in zip(part.subplots(len(lines), columns, squeeze=False), lines, strict=True):
            _draw(axes, line)
    return drawn


def _draw(axes: Sequence[Any], line: Line) -> None:
    for axis in axes:
        axis.set_axis_off()
    axes[0].imshow(line.pixels)
    axes[0].set_title(line.title, fontsize=10)
    times = max(1, 256 // len(line.pixels))  # so that a line of one pixel is thin
    fine = line.pixels.repeat(times, 0).repeat(times, 1)
    for step, (winner, weight) in enumerate(zip(line.winners, line.weights, strict=True), start=1):
        axes[step].imshow(painted(winner, fine))
        axes[step].set_title(f"step {step}, weight {weight:.2f}", fontsize=10)


def painted(winner: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Colour is the winning slot (h, w), brightness the picture's (H, W, 3) of uint8; (H, W, 3) in [0, 1].

    White lines part the slots, for eyes that do not tell their colours.
    """
    numbers = Image.fromarray(winner.astype(np.uint8))
    large = np.asarray(numbers.resize(pixels.shape[1::-1], Image.Resampling.NEAREST))
    drawn = PALETTE[large % len(PALETTE)] * (0.35 + 0.65 * pixels.mean(-1, keepdims=True) / 255)
    drawn[contours(large)] = 1.0
    return drawn


# ---- the study: the same picture whole and with a part hidden


def measure(material: Material, out: Path, progress: Progress) -> Tables:
    """What each stage did with the first picture, clean and occluded; and which slot won which position, step by step.

    The two pictures are written beside the tables, which name them.
    """
    found = material.classifiers()
    if not found.prisms:
        raise Inapplicable("only PRISM has slots, and there is none among the checkpoints")
    subject = found.prisms[0]
    network = subject.model.eval().to(material.device)
    assert isinstance(network, Prism)
    pair = Pairs(found.pictures, OCCLUSION)[0]
    rows, maps = [], []
    for name, image in (("clean", pair.clean), (OCCLUSION.name, pair.occluded)):
        pixels = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        Image.fromarray(pixels).save(out / f"{name}.png")
        with torch.inference_mode():
            trace = network.forward_traced(as_seen(image[None].to(material.device), subject)).trace
        for number, stage in enumerate(trace.stages, start=1):
            which = {"model": subject.name, "run": subject.run, "picture": f"{name}.png", "setting": name}
            rows.append(which | _row(number, stage))
            maps += [
                {"picture": f"{name}.png", "setting": name, "stage": number, "step": step}
                | {"weight": float(stage.weights[0, step - 1]), "winners": _as_text(winner)}
                for step, winner in enumerate(winners(stage), start=1)
            ]
    others = skipped(other_subjects(found.subjects, subject), "the first PRISM is shown")
    return {"slots": rows, "maps": maps, SKIPPED: others}


def report(tables: Tables, out: Path) -> list[Section]:
    rows, maps = tables["slots"], tables["maps"]
    blocks = [
        [_line([row for row in maps if (row["stage"], row["setting"]) == (stage, setting)], out) for stage in STAGES]
        for setting in column(maps, "setting")
    ]
    caption = "Colour is the slot that won most of a position, brightness the picture's."
    return [
        Section(STUDY.title, _words(rows, maps), shown(rows, without=("note", "run", "picture"))),
        Section("", caption, save(sheet(*blocks), out / "slots.png")),
    ]


def _line(rows: Rows, out: Path) -> Line:
    return Line(
        f"stage {rows[0]['stage']}, {rows[0]['setting']}",
        np.asarray(Image.open(out / rows[0]["picture"])),
        [_from_text(row["winners"]) for row in rows],
        [row["weight"] for row in rows],
    )


def _as_text(winner: np.ndarray) -> str:
    """Rows of positions apart by semicolons, positions by blanks."""
    return ";".join(" ".join(map(str, row)) for row in winner.tolist())


def _from_text(text: str) -> np.ndarray:
    return np.array([[int(slot) for slot in row.split()] for row in str(text).split(";")])


def _words(rows: Rows, maps: Rows) -> str:
    settings, agreement = column(rows, "setting"), []
    steps = {name: ", ".join(str(row["steps"]) for row in rows if row["setting"] == name) for name in settings}
    for stage in STAGES:
        found = {(row["setting"], row["step"]): _from_text(row["winners"]) for row in maps if row["stage"] == stage}
        last = min(max(step for name, step in found if name == setting) for setting in settings)
        clean, occluded = (found[setting, last] for setting in settings)
        agreement.append(f"{(clean == occluded).mean():.0%} of stage {stage}")
    return (
        f"In the four stages the clean picture takes {steps[settings[0]]} steps, with {settings[1]} "
        f"{steps[settings[1]]}. "
        f"After the last step that both took, the same slot wins in both at {', '.join(agreement)}."
    )


STUDY = Study(
    "slots",
    "Slots of a clean and an occluded picture",
    "which slot wins which part of a picture, stage by stage and step by step, and does hiding change it?",
    "",
    "a PRISM classifier",
    "classifiers",
    measure,
    report,
)
