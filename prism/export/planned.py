"""Networks in every engine, for `prism speed`: PRISM takes planned steps through its live loop in each.

B images.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from prism.export.engines import ENGINES, open_engine
from prism.export.exportable import Exportable, program
from prism.export.formats import FORMATS
from prism.export.looping import GraphLoop
from prism.metrics.speed import PLANNED, Runner, check_steps, planned_steps, with_steps
from prism.model.backbone import Prism
from prism.model.metadata import Metadata


class Planned(Exportable):
    """Takes the steps of a plan (images, stages): an image says by its first number which of them are its own.

    A graph has no memory of the images that it has seen. The halting units are still asked: their cost counts.
    """

    def __init__(self, network: Prism, means: Sequence[float]):
        super().__init__(network)
        check_steps(network, means)
        self.register_buffer("plan", planned_steps(means))
        for stage in self._stages:
            stage.add_module("halting", _Unheard(stage.halting))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        planned = self.get_buffer("plan")[images[:, 0, 0, 0].long()]
        for place, stage in enumerate(self._stages):
            assert isinstance(stage.refine, GraphLoop)
            stage.refine.most = planned[:, place]
        return super().forward(images)


class _Unheard(nn.Module):
    """A halting unit that never reaches 1."""

    def __init__(self, unit: nn.Module):
        super().__init__()
        self.unit = unit

    def forward(self, tokens: Tensor) -> Tensor:
        return 1e-6 * self.unit(tokens)


def runner(engine: str, size: int, threads: int, folder: Path) -> Callable[[nn.Module, Sequence[float] | None], Runner]:
    """For `make_cases`: what runs a network at mean steps by this engine.

    Files, traced with images of about `size`, go into `folder`: one serves all engines that read it.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; choose from {', '.join(ENGINES)}")
    suffixes, _ = ENGINES[engine]

    def start(model: nn.Module, means: Sequence[float] | None) -> Runner:
        if not suffixes:
            return open_engine(engine, with_steps(model, means), threads)
        to = next(form for form in FORMATS.values() if form.suffix in suffixes)
        file = folder / f"{id(model)}{to.suffix}"
        network = Planned(model, means) if means and isinstance(model, Prism) else Exportable(model)
        if not file.exists():
            to.write(program(network, size), network.names, file, Metadata())
        run = open_engine(engine, file, threads)
        return numbered(run) if isinstance(network, Planned) else run

    return start


def numbered(run: Runner) -> Runner:
    """Numbers the images that it runs."""
    seen = 0

    def numbered(images: Tensor) -> object:
        nonlocal seen
        images[:, 0, 0, 0] = torch.arange(seen, seen + len(images)) % PLANNED
        seen += len(images)
        return run(images)

    return numbered
