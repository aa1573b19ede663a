"""How many steps stages take: over images, and over training."""

from collections.abc import Sequence
from typing import Any

import numpy as np

NEARLY = 0.1  # steps: what counts as stable
Curve = Sequence[tuple[float, float]]  # (epoch, mean steps)


def step_statistics(steps: np.ndarray) -> list[dict[str, Any]]:
    """For each stage the mean over images (n, stages), and their deviation."""
    return [
        {"stage": number, "steps": float(own.mean()), "deviation": float(own.std()), "images": len(own)}
        for number, own in enumerate(steps.T, start=1)
    ]


def stable_from(curve: Curve) -> float:
    """The epoch after which the steps stay within NEARLY of where they end."""
    last = curve[-1][1]
    late = [epoch for epoch, steps in curve if abs(steps - last) > NEARLY]
    return late[-1] if late else curve[0][0]
