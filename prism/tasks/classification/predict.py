"""What is in an image? The likeliest classes; for PRISM also the steps it took."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prism.data.images import read_image
from prism.data.preprocessing import Preprocessing
from prism.model.backbone import Prism, Trace
from prism.reporting.files import write_text
from prism.reporting.tables import Row

CHOICES = 5
Draw = Callable[[Tensor, Trace, Path], object]  # of an image in [0, 1], what PRISM did with it, and a file


@torch.inference_mode()
def predict(
    model: nn.Module | Callable[[Tensor], Mapping[str, Tensor]],
    images: Sequence[Path],
    classes: Sequence[str],
    preprocessing: Preprocessing,
    out: Path,
    draw: Draw | None = None,
) -> list[Row]:
    """Write predictions.json and, for PRISM, what `draw` makes of each image into `out`; return rows to show."""
    pictures = [preprocessing.unit(read_image(path)) for path in images]  # a bad one stops all
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for number, (path, picture) in enumerate(zip(images, pictures, strict=True), start=1):
        shown, steps = preprocessing.normalised(picture)[None], None
        if isinstance(model, Prism):
            logits, trace = model.forward_traced(shown)
            steps = [int(stage.steps) for stage in trace.stages]
            if draw:
                draw(picture, trace, out / f"{number}-{path.stem}.png")
        else:
            answer = model(shown)
            if isinstance(answer, Mapping):  # of an exported file
                steps = answer["steps"][0].tolist() if "steps" in answer else None
                answer = answer["logits"]
            logits = answer
        if not logits.isfinite().all():
            raise ValueError(f"the model's answer to {path} is not finite")
        top = logits[0].float().softmax(0).topk(min(CHOICES, logits.shape[1]))
        choices = [
            {"class": classes[index] if index < len(classes) else f"class {index}", "probability": probability}
            for probability, index in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        found.append({"image": str(path), "choices": choices, "steps": steps})
    write_text(out / "predictions.json", json.dumps(found, indent=2) + "\n")
    return [_row(**entry) for entry in found]


def _row(image: str, choices: list[dict[str, Any]], steps: list[int] | None) -> Row:
    ranked = {str(rank): f"{c['class']} {c['probability']:.1%}" for rank, c in enumerate(choices, start=1)}
    return {"image": image, **ranked, "steps": " ".join(map(str, steps)) if steps else None}
