"""The same weights under other switches: what a trained PRISM does with fewer steps, or without its memory."""

import copy
from typing import Any

from torch import nn

from prism.model.backbone import Prism


def switched(network: Prism, halting_bias: float = 0.0, **switches: Any) -> Prism:
    """A network of its own switches that shares all weights: `fixed_steps`, `max_steps`, `memory`.

    `halting_bias` is added to the logit of every halting unit, which shifts the threshold at which it halts: above 0
    halts earlier.
    """
    shared = [*network.parameters(), *network.buffers()]
    twin = copy.deepcopy(network, {id(tensor): tensor for tensor in shared})
    for name, value in switches.items():
        if not isinstance(getattr(Prism, name, None), property):
            raise ValueError(f"PRISM has no switch {name!r}")
        setattr(twin, name, value)
    for stage in _stages(twin) if halting_bias else ():
        bias = stage.halting.fc.bias
        stage.halting.fc.bias = nn.Parameter((bias + halting_bias).detach(), requires_grad=bias.requires_grad)
    return twin


def _stages(network: Prism) -> list[Any]:
    return list(network.stages)
