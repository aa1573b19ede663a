"""The same weights under other switches: what a trained PRISM does with fewer steps, or without its memory."""

import copy
from typing import Any

from torch import nn

from prism.model.backbone import Prism


def switched(network: Prism, halting_bias: float = 0.0, **switches: Any) -> Prism:
    """A network with switches of its own that shares all weights: `fixed_steps`, `max_steps`, `memory`.

    `halting_bias` is added to the logit of every halting unit: above 0, images halt earlier.
    """
    shared = [*network.parameters(), *network.buffers()]
    twin = copy.deepcopy(network, {id(tensor): tensor for tensor in shared})
    for name, value in switches.items():
        if not isinstance(getattr(Prism, name, None), property):
            raise ValueError(f"PRISM has no switch {name!r}")
        setattr(twin, name, value)
    stages: list[Any] = list(twin.stages) if halting_bias else []
    for stage in stages:
        bias = stage.halting.fc.bias
        stage.halting.fc.bias = nn.Parameter((bias + halting_bias).detach(), requires_grad=bias.requires_grad)
    return twin
