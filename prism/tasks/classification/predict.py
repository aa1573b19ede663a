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
    loaded = [preprocessing.unit(read_image(path)) for path in images]  # a bad one stops all
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for number, (path, image) in enumerate(zip(images, loaded, strict=True), start=1):
        shown, steps = preprocessing.normalised(image)[None], None
        if isinstance(model, Prism):
            logits, trace = model.forward_traced(shown)
            steps = [int(stage.steps) for stage in trace.stages]
            if draw:
                draw(image, trace, out / f"{number}-{path.stem}.png")
        else:
            answer = model(shown)
            logits, steps = _of_file(answer, len(classes)) if isinstance(answer, Mapping) else (answer, None)
        if not logits.isfinite().all():
            raise ValueError(f"the model's output for {path} is not finite")
        top = logits[0].float().softmax(0).topk(min(CHOICES, logits.shape[1]))
        choices = [
            {"class": classes[index] if index < len(classes) else f"class {index}", "probability": probability}
            for probability, index in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        found.append({"image": str(path), "choices": choices, "steps": steps})
    write_text(out / "predictions.json", json.dumps(found, indent=2) + "\n")
    return [_row(**entry) for entry in found]


def _of_file(answer: Mapping[str, Tensor], classes: int) -> tuple[Tensor, list[int] | None]:
    """Logits and steps of one image by an exported file, which may be a stranger's."""
    logits, steps = answer["logits"], answer.get("steps")
    if len(logits.shape) != 2 or len(logits) != 1 or not logits.is_floating_point():
        raise ValueError(f"the exported file returns {logits.dtype} of {tuple(logits.shape)}, not logits")
    if not logits.shape[1] or classes not in (0, logits.shape[1]):
        raise ValueError(f"the exported file names {classes} classes, but returns {logits.shape[1]} logits")
    if steps is None:
        return logits, None
    if len(steps.shape) != 2 or len(steps) != 1 or steps.is_floating_point():
        raise ValueError(f"the exported file returns steps as {steps.dtype} of {tuple(steps.shape)}")
    return logits, steps[0].tolist()


def _row(image: str, choices: list[dict[str, Any]], steps: list[int] | None) -> Row:
    ranked = {str(rank): f"{c['class']} {c['probability']:.1%}" for rank, c in enumerate(choices, start=1)}
    return {"image": image, **ranked, "steps": " ".join(map(str, steps)) if steps else None}
