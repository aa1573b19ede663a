"""What accuracy costs: one trained PRISM with its halting made more or less eager, and the time that its steps take."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import nn

from prism.analysis.variants import switched
from prism.metrics import speed
from prism.model.backbone import Prism

SHIFTED, CAPPED, FIXED, AS_IS = "shifted threshold", "capped steps", "fixed steps", "as it is"


class Variant(NamedTuple):
    sweep: str
    value: float
    model: nn.Module  # shares the weights


def sweeps(model: nn.Module, biases: Sequence[float]) -> Iterator[Variant]:
    """Shift the threshold of the halting units, cap their steps, or fix the steps; another model is left as it is."""
    if not isinstance(model, Prism):
        yield Variant(AS_IS, 0, model)
        return
    yield from (Variant(SHIFTED, bias, switched(model, halting_bias=bias)) for bias in biases)
    every = range(1, model.max_steps + 1)
    yield from (Variant(CAPPED, cap, switched(model, max_steps=cap)) for cap in every)
    yield from (Variant(FIXED, steps, switched(model, fixed_steps=steps)) for steps in every)


def images_per_second(
    models: Mapping[str, nn.Module],
    steps: Mapping[str, Sequence[float]],
    side: int,
    batch: int,
    repeats: int,
    progress: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Of all models in turn on the CPU, with their spread. One whose mean `steps` are given is forced to take them."""
    cases = speed.make_cases({name: model.cpu() for name, model in models.items()}, steps, [side], [batch])
    timed = speed.measure(cases, repeats, progress=progress)
    return {row["model"]: {"images/s": row["images/s"], "spread": row["spread"]} for row in timed}
