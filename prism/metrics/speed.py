"""Images per second of several models, measured side by side.

A machine's speed drifts, so every model runs in every repeat, one after the other, and what is compared is the
ratio within a repeat. The peak of the machine's own matrix product is measured in the same repeats.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from prism.metrics.complexity import macs_by_module, step_cost
from prism.model.backbone import Prism
from prism.model.compilation import never_compile

PEAK_SIDE = 1024
IMAGES_A_REPEAT = 10  # at batch 1 a mean of 2.5 steps needs several images


class Case(NamedTuple):
    model: str
    size: int
    batch: int
    forward: Callable[[], object]
    forwards: int  # in a repeat
    macs: float  # of an image


class ForcedSteps(nn.Module):
    """A halting unit that decides by plan: images take floor or ceiling of `mean` steps, `mean` in the long run.

    It asks the real unit too, so that its cost is in the measurement, and halts through the real loop.
    """

    def __init__(self, unit: nn.Module, mean: float, phase: float):
        super().__init__()
        self.unit, self.mean, self.phase = unit, mean, phase
        self.images = 0
        self.left = torch.zeros(0, dtype=torch.long)

    def forward(self, tokens: Tensor) -> Tensor:
        return self._decide(self.unit(tokens))

    @never_compile
    def _decide(self, probability: Tensor) -> Tensor:
        if not len(self.left):
            self.left = torch.tensor([self._steps(self.images + i) for i in range(len(probability))])
            self.images += len(probability)
        last = self.left == 1
        self.left = (self.left - 1)[~last]
        return last.to(probability)

    def _steps(self, image: int) -> int:
        return int(self.mean * (image + 1) + self.phase) - int(self.mean * image + self.phase)


def force_steps(model: Prism, means: Sequence[float]) -> None:
    """Let every stage halt after the given mean number of steps."""
    if min(means) < 1 or max(means) > model.max_steps:
        raise ValueError(f"steps must lie between 1 and {model.max_steps}, got {', '.join(map(str, means))}")
    for index, (stage, mean) in enumerate(zip(model.stages, means, strict=True)):
        unit = stage.get_submodule("halting")
        stage.add_module("halting", ForcedSteps(unit, mean, phase=index / len(means)))  # stages differ in the images


def measure(
    models: dict[str, nn.Module],
    steps: dict[str, Sequence[float]],
    sizes: Sequence[int],
    batches: Sequence[int],
    dtype: torch.dtype,
    compiled: bool,
    repeats: int,
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Rows of images per second. `steps` names the PRISM models whose halting is forced to given means."""
    for name, means in steps.items():
        force_steps(models[name], means)  # pyright: ignore[reportArgumentType]
    cases = []
    for name, model in models.items():
        for size in sizes:
            macs = _macs(model, steps.get(name), size)
            runner = torch.compile(model.eval()) if compiled else model.eval()
            for batch in batches:
                images = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))
                forward = _forward(runner, images, dtype)
                progress(f"warming up {name} at {size} px, batch {batch}")
                for _ in range(3):
                    forward()
                cases.append(Case(name, size, batch, forward, -(-IMAGES_A_REPEAT // batch), macs))
    peaks, seconds = [], {case: [] for case in cases}
    matrix = torch.randn(PEAK_SIDE, PEAK_SIDE).to(dtype)
    for repeat in range(repeats):
        progress(f"repeat {repeat + 1} of {repeats}")
        peaks.append(2 * PEAK_SIDE**3 / _seconds(lambda: matrix @ matrix, 1))
        for case in cases:
            seconds[case].append(_seconds(case.forward, case.forwards))
    return [_row(case, cases, seconds, statistics.median(peaks), dtype, compiled) for case in cases]


def _macs(model: nn.Module, steps: Sequence[float] | None, size: int) -> float:
    if isinstance(model, Prism) and (steps or model.fixed_steps):
        return step_cost(model, (size, size)).macs(steps or model.fixed_steps or ())
    return macs_by_module(model, (size, size))[""]


def _forward(model: nn.Module | Callable[..., Any], images: Tensor, dtype: torch.dtype) -> Callable[[], object]:
    def forward() -> object:
        with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            return model(images)

    return forward


def _seconds(run: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def _row(
    case: Case, cases: list[Case], seconds: dict[Case, list[float]], peak: float, dtype: torch.dtype, compiled: bool
) -> dict[str, Any]:
    first = next(c for c in cases if (c.size, c.batch) == (case.size, case.batch))
    times = seconds[case]
    median = statistics.median(times)
    ratio = statistics.median(a / b for a, b in zip(seconds[first], times, strict=True))
    low, _, high = statistics.quantiles(times, n=4)
    return {
        "model": case.model,
        "px": case.size,
        "batch": case.batch,
        "dtype": str(dtype).removeprefix("torch."),
        "compiled": str(compiled).lower(),
        "images/s": case.batch / median,
        "spread": (high - low) / median,
        f"ratio to {first.model}": ratio,
        "GMAC": case.macs / 1e9,
        "share of matmul peak": 2 * case.macs * case.batch / median / peak,
    }
