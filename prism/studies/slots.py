"""Slot maps: which slot wins which part of a picture, stage by stage and step by step."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from timm.data import resolve_data_config
from torch import Tensor, nn

from prism.data.pictures import read_picture
from prism.data.scenes import render_scene
from prism.evaluation import table
from prism.model.backbone import Prism
from prism.model.stage import StageTrace


def picture(path: Path | None, size: int, seed: int) -> np.ndarray:
    """The picture at `path`, or a generated scene, as (size, size, 3) of uint8."""
    if path is None:
        return render_scene(size, seed)
    return np.asarray(read_picture(path).resize((size, size), Image.Resampling.BICUBIC))


def draw(model: Prism, pixels: np.ndarray, out: Path) -> list[dict[str, Any]]:
    """Write slots.csv and slots.png into `out`; return the rows of the former."""
    with torch.inference_mode():
        trace = model.eval().forward_traced(normalised(pixels, model)).trace
    rows = [_row(index, stage) for index, stage in enumerate(trace.stages, start=1)]
    table.write(rows, out / "slots", "Steps taken in each stage, weights of their states, and slots in use.")
    figure(pixels, trace.stages).savefig(out / "slots.png", dpi=110)
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


def figure(pixels: np.ndarray, stages: list[StageTrace]) -> Figure:
    """A row a stage; the picture, then a map a step: colour is the winning slot, brightness the picture's."""
    columns = 1 + max(int(stage.steps[0]) for stage in stages)
    sheet = Figure(figsize=(2.2 * columns, 2.4 * len(stages)), layout="constrained")
    axes = sheet.subplots(len(stages), columns, squeeze=False)
    palette = np.asarray(matplotlib.colormaps["tab20"].colors)  # pyright: ignore[reportAttributeAccessIssue]
    grey = pixels.mean(-1, keepdims=True) / 255
    for row, (stage, line) in enumerate(zip(stages, axes, strict=True), start=1):
        assert stage.slot_maps is not None
        for axis in line:
            axis.set_axis_off()
        line[0].imshow(pixels)
        line[0].set_title(f"stage {row}: {int(stage.steps[0])} steps")
        for step in range(int(stage.steps[0])):
            winner = stage.slot_maps[0, step].argmax(0).numpy()  # (H, W)
            colours = Image.fromarray((palette[winner % len(palette)] * 255).astype(np.uint8))
            large = np.asarray(colours.resize(pixels.shape[1::-1], Image.Resampling.NEAREST)) / 255
            line[1 + step].imshow(large * (0.35 + 0.65 * grey))
            line[1 + step].set_title(f"step {step + 1}, weight {stage.weights[0, step]:.2f}")
    return sheet
