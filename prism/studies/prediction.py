"""What is in a picture? The likeliest classes; of PRISM also the steps it took and its slot maps."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from prism.data.pictures import read_picture
from prism.data.preprocessing import Preprocessing
from prism.model.backbone import Prism
from prism.reporting.figures import pixels as as_pixels
from prism.studies.slots import lines, normalised, sheet

CHOICES = 5


@torch.inference_mode()
def predict(
    model: nn.Module, images: Sequence[Path], classes: Sequence[str], preprocessing: Preprocessing, out: Path
) -> list[dict[str, Any]]:
    """Write predictions.json and, of PRISM, a picture of slot maps for each image into `out`; return rows to show."""
    pictures = [preprocessing.unit(read_picture(path)) for path in images]  # a bad one stops all
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for number, (path, picture) in enumerate(zip(images, pictures, strict=True), start=1):
        pixels = as_pixels(picture)
        steps = None
        if isinstance(model, Prism):
            logits, trace = model.forward_traced(normalised(pixels, model))
            steps = [int(stage.steps) for stage in trace.stages]
            sheet(lines(pixels, trace.stages)).savefig(out / f"{number}-{path.stem}.png", dpi=110)
        else:
            logits = model(normalised(pixels, model))
        if not logits.isfinite().all():
            raise ValueError(f"the model's answer to {path} is not finite")
        top = logits[0].float().softmax(0).topk(min(CHOICES, logits.shape[1]))
        choices = [
            {"class": classes[index] if index < len(classes) else f"class {index}", "probability": probability}
            for probability, index in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        found.append({"image": str(path), "choices": choices, "steps": steps})
    (out / "predictions.json").write_text(json.dumps(found, indent=2) + "\n")
    return [_row(**entry) for entry in found]


def _row(image: str, choices: list[dict[str, Any]], steps: list[int] | None) -> dict[str, Any]:
    ranked = {str(rank): f"{c['class']} {c['probability']:.1%}" for rank, c in enumerate(choices, start=1)}
    return {"image": image, **ranked, "steps": " ".join(map(str, steps)) if steps else None}
