"""Images per second of several models, measured side by side.

A machine's speed drifts, so every model runs in every repeat, one after the other, and what is compared is the
ratio within a repeat. The peak of the machine's own matrix product is measured in the same repeats.
"""

import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from prism.metrics.complexity import macs_by_module, step_cost
from prism.model.backbone import Prism
from prism.model.compilation import never_compile
from prism.model.halting import Halt, decide, refine_until_halted
from prism.model.stage import Stage

PEAK_SIDE = 1024
PLANNED = 100  # images of a plan: a mean of 2.53 steps is kept exactly
IMAGES_PER_REPEAT = 10  # at batch 1 a mean of 2.5 steps needs several images


class Case(NamedTuple):
    model: str
    engine: str
    size: int
    batch: int
    forward: Callable[[], object]
    macs: float  # of an image


def planned_steps(means: Sequence[float], images: int = PLANNED) -> Tensor:
    """(images, stages), floor or ceiling of each stage's mean, which is kept; stages differ in the images of either."""
    numbers = range(images + 1)
    ends = [[int(mean * n + place / len(means)) for n in numbers] for place, mean in enumerate(means)]
    return torch.tensor(ends).diff().mT


class ForcedSteps:
    """Decides by plan (images,), over and over, whatever the halting unit says: in place of `halt` in the real loop."""

    def __init__(self, plan: Tensor):
        self.plan = plan
        self.images = 0
        self.left = torch.zeros(0, dtype=torch.long)

    @never_compile
    def __call__(self, probability: Tensor, total: Tensor, last: bool) -> Halt:
        if not len(self.left):
            self.left = self.plan[torch.arange(self.images, self.images + len(probability)) % len(self.plan)]
            self.images += len(probability)
        halted = self.left == 1
        self.left = (self.left - 1)[~halted]
        return decide(halted.to(probability), total, last)


def force_steps(model: Prism, means: Sequence[float]) -> None:
    """Let every stage halt after the given mean number of steps."""
    check_steps(model, means)
    for stage, plan in zip(model.stages, planned_steps(means).T, strict=True):
        assert isinstance(stage, Stage)
        stage.refine = partial(refine_until_halted, halt=ForcedSteps(plan))


def check_steps(model: Prism, means: Sequence[float]) -> None:
    if min(means) < 1 or max(means) > model.max_steps:
        raise ValueError(f"steps must lie between 1 and {model.max_steps}, got {', '.join(map(str, means))}")


Runner = Callable[[Tensor], object]


def with_steps(model: nn.Module, means: Sequence[float] | None) -> nn.Module:
    """A copy of a PRISM that takes these mean steps; any other model as it is."""
    if means and isinstance(model, Prism):
        model = copy.deepcopy(model)
        force_steps(model, means)
    return model


def make_cases(
    models: Mapping[str, nn.Module],
    steps: Mapping[str, Sequence[float]],
    sizes: Sequence[int],
    batches: Sequence[int],
    engine: str = "eager",
    runner: Callable[[nn.Module, Sequence[float] | None], Runner] = with_steps,
    dtype: torch.dtype = torch.float32,
) -> list[Case]:
    """Every model at every size and batch; `steps` names the PRISM models whose mean steps are forced.

    What an engine cannot prepare is refused when it is run.
    """
    found = []
    for name, model in models.items():
        means = steps.get(name)
        try:
            run = runner(model.eval(), means)
        except (ValueError, RuntimeError) as error:
            run = _refusing(error)
        for size in sizes:
            macs = _macs(model, means, size)
            for batch in batches:
                images = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))
                found.append(Case(name, engine, size, batch, _forward(run, images, dtype), macs))
    return found


def measure(
    cases: Sequence[Case],
    repeats: int,
    dtype: torch.dtype = torch.float32,
    progress: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Rows of images per second. Ratios are to the first model, by the same engine on the same images.

    A case that cannot run has a row that says why; if none can, that is an error.
    """
    reasons = {}
    for case in cases:
        progress(f"warming up {case.model} by {case.engine} at {case.size} px, batch {case.batch}")
        try:
            for _ in range(3):
                case.forward()
        except (ValueError, RuntimeError) as error:
            reasons[case] = " ".join(str(error).split())[:100]
    if len(reasons) == len(cases):
        raise ValueError(f"{cases[0].engine} cannot run {cases[0].model}: {reasons[cases[0]]}")
    peaks, seconds = [], {case: [] for case in cases if case not in reasons}
    matrix = torch.randn(PEAK_SIDE, PEAK_SIDE).to(dtype)
    for repeat in range(repeats):
        progress(f"repeat {repeat + 1} of {repeats}")
        peaks.append(2 * PEAK_SIDE**3 / _seconds(lambda: matrix @ matrix, 1))
        for case, times in seconds.items():
            times.append(_seconds(case.forward, -(-IMAGES_PER_REPEAT // case.batch)))
    peak = statistics.median(peaks)
    return [
        _named(case, dtype) | ({"cannot run": reasons[case]} if case in reasons else _figures(case, seconds, peak))
        for case in cases
    ]


def _macs(model: nn.Module, steps: Sequence[float] | None, size: int) -> float:
    if isinstance(model, Prism) and (steps or model.fixed_steps):
        return step_cost(model, (size, size)).macs(steps or model.fixed_steps or ())
    return macs_by_module(model, (size, size))[""]


def _forward(run: Runner, images: Tensor, dtype: torch.dtype) -> Callable[[], object]:
    def forward() -> object:
        with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            return run(images)

    return forward


def _refusing(error: Exception) -> Runner:
    def run(images: Tensor) -> object:
        raise ValueError(str(error))

    return run


def _seconds(run: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def _named(case: Case, dtype: torch.dtype) -> dict[str, Any]:
    return {
        "model": case.model,
        "engine": case.engine,
        "px": case.size,
        "batch": case.batch,
        "dtype": str(dtype).removeprefix("torch."),
    }


def _figures(case: Case, seconds: Mapping[Case, list[float]], peak: float) -> dict[str, Any]:
    first = next(c for c in seconds if (c.engine, c.size, c.batch) == (case.engine, case.size, case.batch))
    times = seconds[case]
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4)
    return {
        "images/s": case.batch / median,
        "spread": (high - low) / median,
        f"ratio to {first.model}": statistics.median(a / b for a, b in zip(seconds[first], times, strict=True)),
        "GMAC": case.macs / 1e9,
        "share of matmul peak": 2 * case.macs * case.batch / median / peak,
    }
