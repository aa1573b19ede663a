"""Parameters and multiply-accumulates of any model, by part; for PRISM also as a function of its steps.

MACs are counted by running one image through torch's flop counter (2 flops per MAC), with attention in its plain form:
the counter takes the fused one on CPU for free.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from prism.model.backbone import Prism  # also defines the operator counted below

PAPER_STEPS = (2.5, 3.2, 3.7, 2.5)  # stage 3 is the paper's 3.73, the others are read off its text


@register_flop_formula(torch.ops.prism.hidden_mixing_in_slices)
def _sliced_ffn_flops(tokens: Sequence[int], height: int, width: int, weights: Any, **_: Any) -> int:
    """The counter does not look into an operator of our own. The rows that bands compute twice are not counted."""
    batch, count, dim = tokens
    hidden, kernel = weights[0][0], weights[1][-1]
    return 2 * batch * count * hidden * (2 * dim + kernel**2)


COARSEST = 32  # stride of the last maps: images are brought to a multiple of it


class Costs(NamedTuple):
    parameters: int
    macs: float  # of an image


class StepCost(NamedTuple):
    """MACs = once + sum over stages of steps * a_step; the last step of a stage spares its slots' update."""

    at_one_step: int
    further_step: list[int]  # one entry per stage

    def macs(self, steps: Sequence[float]) -> float:
        """Steps may be means: the cost is linear in them."""
        return self.at_one_step + sum((s - 1) * a for s, a in zip(steps, self.further_step, strict=True))


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def macs_by_module(model: nn.Module, size: tuple[int, int], in_chans: int = 3) -> dict[str, int]:
    """MACs of one image in each submodule, by its name; '' is the whole."""
    image = torch.zeros(1, in_chans, *size, device=next(model.parameters()).device)
    needs_grad = [p for p in model.parameters() if p.requires_grad]
    was_training = model.training
    model.eval().requires_grad_(False)  # the counter's hooks trip over parameters that want a gradient
    try:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.inference_mode():
            model(image)
    finally:
        model.train(was_training)
        for p in needs_grad:
            p.requires_grad_(True)
    counts = {name: sum(ops.values()) // 2 for name, ops in counter.get_flop_counts().items()}
    prefix = type(model).__name__
    return {name.removeprefix(prefix).removeprefix("."): n for name, n in counts.items() if name.startswith(prefix)}


def step_cost(model: Prism, size: tuple[int, int]) -> StepCost:
    stages = range(len(model.stages))
    one, *two = (
        _macs_at(model, model, size, [1 + (index == longer) for index in stages])[""] for longer in (None, *stages)
    )
    return StepCost(one, [macs - one for macs in two])


def costs(network: nn.Module, size: tuple[int, int]) -> Costs:
    """Of a network and an image; a PRISM inside is counted at the paper's mean steps, on whole patches."""
    inner = next((module for module in network.modules() if isinstance(module, Prism)), None)
    if inner is None:
        return Costs(parameters(network), macs_by_module(network, size)[""])
    height, width = (-(-side // COARSEST) * COARSEST for side in size)
    steps = step_cost(inner, (height, width))
    macs = _macs_at(inner, network, size, 1)[""] + steps.macs(PAPER_STEPS) - steps.at_one_step
    return Costs(parameters(network), macs)


def _macs_at(prism: Prism, network: nn.Module, size: tuple[int, int], steps: int | list[int]) -> dict[str, int]:
    """MACs of the network by module while the PRISM in it takes so many steps."""
    before = prism.fixed_steps
    try:
        prism.fixed_steps = steps
        return macs_by_module(network, size, prism.in_chans)
    finally:
        prism.fixed_steps = before


def parts(model: nn.Module, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Rows of parameters and MACs: for PRISM the parts of each stage, for another model its children."""
    if not isinstance(model, Prism):
        macs = macs_by_module(model, size, getattr(model, "in_chans", 3))
        names = [name for name, child in model.named_children() if parameters(child) or macs.get(name)]
        rows = [_row(name, model.get_submodule(name), macs.get(name, 0)) for name in names]
        if bare := parameters(model) - sum(row["parameters"] for row in rows):  # of no child, as a class token is
            rows.append(dict(part="own parameters", parameters=bare, MMAC=0.0, per="image"))
        return [*rows, _row("all", model, macs[""])]
    macs = _macs_at(model, model, size, 2)  # so that each part runs: the slots' update is a step's, the last excepted
    rows, hoisted = [], 0
    for index in range(len(model.stages)):
        stage = f"stages.{index}"
        inner = {"memory": macs.get(f"{stage}.step.memory", 0) // 2, "token_ffn": macs[f"{stage}.step.token_ffn"] // 2}
        slot_ffn = macs[f"{stage}.step.slot_ffn"]
        attention = macs[f"{stage}.step"] // 2 - sum(inner.values())
        hoisted += macs[stage] - macs[f"{stage}.tokeniser"] - macs[f"{stage}.step"] - slot_ffn  # W_q p
        rows += [
            _row(f"{stage}.tokeniser", model.get_submodule(f"{stage}.tokeniser"), macs[f"{stage}.tokeniser"]),
            dict(
                part=f"{stage}.attention",
                parameters=_own_weights(model.get_submodule(f"{stage}.step")),
                MMAC=attention / 1e6,
                per="step",
            ),
            *(
                _row(f"{stage}.{name}", model.get_submodule(f"{stage}.step.{name}"), n, "step")
                for name, n in {**inner, "slot_ffn": slot_ffn}.items()
            ),
        ]
    head = _row("head", model.head, macs.get("head", 0))
    listed = sum(row["parameters"] for row in rows) + head["parameters"]
    others = "norms, slots, positions, halting"
    rest = dict(part=others, parameters=parameters(model) - listed, MMAC=hoisted / 1e6, per="image")
    return [*rows, rest, head, _row("all, at one step", model, step_cost(model, size).at_one_step)]


def _own_weights(step: nn.Module) -> int:
    return sum(parameters(step.get_submodule(name)) for name in ("to_query", "to_key", "to_value"))


def by_steps(model: Prism, size: tuple[int, int], profiles: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Rows of GMACs at 1..T_max steps in every stage, then at each profile of mean steps."""
    cost = step_cost(model, size)
    fixed = [(float(t),) * len(model.stages) for t in range(1, model.max_steps + 1)]
    rows = [*fixed, *profiles]
    return [dict(steps=", ".join(f"{s:g}" for s in steps), GMAC=cost.macs(steps) / 1e9) for steps in rows]


def _row(name: str, module: nn.Module, macs: int, per: str = "image") -> dict[str, Any]:
    return dict(part=name, parameters=parameters(module), MMAC=macs / 1e6, per=per)
