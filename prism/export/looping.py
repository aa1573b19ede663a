"""PRISM's loop over its steps as one operator of a graph, so that an exported network halts as it does in Python.

B images, N = H W tokens, K slots, D channels.
"""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop_op
from torch.func import functional_call

from prism.model.attention import at_least_float32
from prism.model.halting import Refined, decide
from prism.model.position import Positions
from prism.model.refinement import Hoisted, RefinementStep, State, Watch


class GraphLoop:
    """`refine_until_halted` as an operator; `steps` (B,) are those of the images that were seen last.

    `most` (B,) is the most steps that each image may take; without it, the stage's own.

    A graph cannot shrink its batch: an image that has halted stays, with weight 0, until all have.
    """

    def __init__(self) -> None:
        self.steps: Tensor | None = None
        self.most: Tensor | None = None

    def __call__(
        self,
        step: RefinementStep,
        unit: nn.Module,
        state: State,
        hoisted: Hoisted,
        max_steps: int,
        watch: Watch,
        save_memory: bool,
    ) -> Refined:
        advance = _Advance(step, unit, watch)
        weights = dict(advance.named_parameters()) | dict(advance.named_buffers())
        total = at_least_float32(torch.zeros_like(state.tokens[:, 0, 0]))
        most = torch.full_like(total, max_steps, dtype=torch.long) if self.most is None else self.most
        kept = (*hoisted.positions.grid, hoisted.positions.axes, hoisted.queries.axes, hoisted.squared_norms, most)
        kept += () if state.evidence is None else (state.evidence,)

        def goes_on(running: Tensor, *_: Tensor) -> Tensor:
            return running.any()

        def body(*given: Tensor) -> tuple[Tensor, ...]:
            # an operator's body sees only what it is given: the weights come last
            named = dict(zip(weights, given[-len(weights) :], strict=True))
            return functional_call(advance, named, given[: -len(weights)])

        carried = (
            torch.ones_like(total, dtype=torch.bool),
            torch.zeros_like(total, dtype=torch.long),
            total,
            torch.zeros_like(state.tokens),
            state.tokens,
            state.slots,
            torch.ones_like(total[0], dtype=torch.long),
        )
        _, self.steps, _, mixture, *_ = while_loop_op(goes_on, body, carried, (*kept, *weights.values()))  # pyright: ignore
        return Refined(mixture, [])


class _Advance(nn.Module):
    """One step of every image, and the decision after it."""

    def __init__(self, step: RefinementStep, unit: nn.Module, watch: Watch):
        super().__init__()
        self.step, self.unit, self.watch = step, unit, watch

    def forward(
        self,
        running: Tensor,  # (B,), whether the image has not halted yet
        steps: Tensor,  # (B,)
        total: Tensor,  # (B,), probability spent so far
        mixture: Tensor,  # (B, N, D), sum of p-hat^t x^t
        tokens: Tensor,  # (B, N, D)
        slots: Tensor,  # (B, K, D)
        t: Tensor,
        height: int,
        width: int,
        axes: Tensor,
        query_axes: Tensor,
        squared_norms: Tensor,
        most: Tensor,  # (B,)
        evidence: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        grid = height, width
        hoisted = Hoisted(Positions(axes, grid), Positions(query_axes, grid), squared_norms)
        tokens, where, _, _ = self.step(State(tokens, slots, evidence), hoisted, self.watch)
        weight, halted, total = decide(self.unit(tokens), total, last=t >= most)
        mixture = torch.addcmul(mixture, weight.where(running, 0)[:, None, None].to(tokens.dtype), tokens)
        return running & ~halted, steps + running, total, mixture, tokens, self.step.next_slots(slots, where), t + 1
