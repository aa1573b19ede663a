"""One stage of the pyramid: a convolution makes tokens, one block refines them until it halts.

B images, N = H W tokens, K slots, D channels, T the most steps that any image of the batch took.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from prism.model.evidence import contrast_evidence, filled, merged
from prism.model.halting import HaltingUnit, Loop, Refined, StepRecord, applications, refine_fixed, refine_until_halted
from prism.model.memory import Codebook
from prism.model.position import sincos_positions
from prism.model.refinement import Hoisted, Refinement, RefinementStep, State, Watch

NOTHING = Watch()


class StageTrace(NamedTuple):
    """What a stage did, image by image. Entries of steps that an image did not take are 0 (codes: -1)."""

    steps: Tensor  # (B,), T of each image
    weights: Tensor  # (B, T), p-hat
    slot_maps: Tensor | None  # (B, T, K, H, W), the share of each position that each slot won; sums to 1 over K
    codes: Tensor | None  # (B, T, K), prototypes looked up; None where the memory has no quantiser
    ponder: Tensor  # (B,), sum over t of t p-hat^t
    vq: Tensor  # (B,), the image's L_vq


class StageStep(NamedTuple):
    """One of a stage's steps, for those who look on."""

    before: Tensor  # (B, N, D), x^t
    refinement: Refinement  # x^{t+1} and what led to it
    features: Tensor  # (B, D, H, W), what the stage would give if it stopped here: X^t in the paper


class Features(NamedTuple):
    """What a stage is given and gives."""

    maps: Tensor  # (B, C, H, W)
    evidence: Tensor | None = None  # (B, 1, H, W); None for an image, and where a network has no use for it


class Tokeniser(nn.Module):
    """Overlapping patch embedding: a strided convolution, then LayerNorm over channels. Holes look like any patch."""

    def __init__(self, in_channels: int, dim: int, kernel: int, stride: int):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, dim, kernel, stride, padding=kernel // 2)
        self.norm = nn.LayerNorm(dim)

    def forward(self, given: Features) -> tuple[Tensor, Tensor | None]:
        """(B, C, H', W') -> (B, H, W, D) and no evidence. Channels stay last, so that tokens are a view of a map."""
        return self.norm(_convolved(self.conv, given.maps)), None


class PatchTokeniser(nn.Module):
    """Patches side by side, so that a token is of one patch alone and a hole of its size empties it."""

    def __init__(self, in_channels: int, dim: int, side: int):
        super().__init__()
        self.side = side
        self.conv = nn.Conv2d(in_channels, dim, side, side)
        self.norm = nn.LayerNorm(dim)

    def forward(self, given: Features) -> tuple[Tensor, Tensor]:
        """(B, C, H', W') -> tokens (B, H, W, D), which are 0 where nothing was seen, and evidence (B, 1, H, W)."""
        seen = contrast_evidence(given.maps) if given.evidence is None else given.evidence  # none yet: an image
        evidence = merged(seen, self.side)
        tokens = self.norm(_convolved(self.conv, filled(given.maps, seen, self.side)))
        return tokens * evidence.permute(0, 2, 3, 1).to(tokens.dtype), evidence


def _convolved(conv: nn.Conv2d, maps: Tensor) -> Tensor:
    return conv(maps.contiguous(memory_format=torch.channels_last)).permute(0, 2, 3, 1)


class Stage(nn.Module):
    """Tokeniser, initial slots, Phi and its halting unit."""

    def __init__(
        self,
        tokeniser: Tokeniser | PatchTokeniser,
        step: RefinementStep,
        num_slots: int,
        dim: int,
        halting_start: float,
    ):
        super().__init__()
        self.tokeniser = tokeniser
        self.initial_slots = nn.Parameter(torch.randn(num_slots, dim))
        self.step = step
        self.halting = HaltingUnit(dim, halting_start)
        self.norm = nn.LayerNorm(dim)
        self.max_steps = 1  # Prism's switches set this and the next
        self.fixed_steps: int | None = None
        self.refine: Loop = refine_until_halted  # or another of the same meaning, where this one cannot run
        self.save_memory = False  # recompute each step in the backward pass

    def forward(self, given: Features, watch: Watch) -> tuple[Features, StageTrace | None]:
        """A map (B, C, H', W') -> the refined map (B, D, H, W), and the trace if losses are watched."""
        state, hoisted, evidence = self._start(given)
        grid = hoisted.positions.grid
        save_memory = self.save_memory and self.training and torch.is_grad_enabled()
        if self.fixed_steps is not None:
            refined = refine_fixed(self.step, state, hoisted, self.fixed_steps, watch, save_memory)
        else:
            refined = self.refine(self.step, self.halting, state, hoisted, self.max_steps, watch, save_memory)
        if self.training:
            _collect(refined.records, self.step.memory.codebook)
        trace = _trace(refined, len(given.maps), grid) if watch.losses else None
        return Features(self._as_map(refined.tokens, grid), evidence), trace

    def steps(self, given: Features, watch: Watch = NOTHING) -> Iterator[StageStep]:
        """Each of `max_steps` steps, one by one, with the halting unit ignored."""
        state, hoisted, _ = self._start(given)
        for before, refinement in applications(self.step, state, hoisted, self.max_steps, watch):
            yield StageStep(before, refinement, self._as_map(refinement.tokens, hoisted.positions.grid))

    def _start(self, given: Features) -> tuple[State, Hoisted, Tensor | None]:
        """The state before the first step, what no step changes, and the evidence as a map."""
        tokens, evidence = self.tokeniser(given)
        batch, height, width, dim = tokens.shape
        hoisted = self.step.hoisted(sincos_positions(height, width, dim, like=tokens))
        slots = self.initial_slots.repeat(batch, 1, 1)  # not expanded: later slots have no zero stride either
        seen = None if evidence is None else evidence.flatten(2).mT.to(tokens.dtype)
        return State(tokens.flatten(1, 2), slots, seen), hoisted, evidence

    def _as_map(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, N, D) -> (B, D, H, W), normalised: how a stage hands tokens on."""
        return self.norm(tokens).unflatten(1, grid).permute(0, 3, 1, 2)


def _collect(records: list[StepRecord], codebook: Codebook) -> None:
    """Hand a forward's assignments to the codebook, in the order (image, step, slot).

    That order makes two ranks with half a batch each, one after the other, the same as one rank with the whole.
    Here, and not in the step: activation checkpointing runs a step twice.
    """
    found = [(r.rows, r.recall) for r in records if r.recall.codes is not None]
    if not found:
        return
    order = torch.cat([rows for rows, _ in found]).argsort(stable=True)
    latents = torch.cat([recall.latents for _, recall in found])  # pyright: ignore
    codes = torch.cat([recall.codes for _, recall in found])  # pyright: ignore
    codebook.collect(latents[order], codes[order])


def _trace(refined: Refined, batch: int, grid: tuple[int, int]) -> StageTrace:
    records = refined.records
    device = refined.tokens.device
    weights = torch.stack([_for_all(r.weight, r.rows, batch) for r in records], dim=1)
    maps = [_for_all(r.shares, r.rows, batch) for r in records if r.shares is not None]
    codes = [_for_all(r.recall.codes, r.rows, batch, absent=-1) for r in records if r.recall.codes is not None]
    losses = [_for_all(r.recall.loss, r.rows, batch) for r in records if r.recall.loss is not None]
    steps = sum(torch.zeros(batch, dtype=torch.long, device=device).index_fill(0, r.rows, 1) for r in records)
    return StageTrace(
        steps=torch.as_tensor(steps),
        weights=weights,
        slot_maps=torch.stack(maps, dim=1).unflatten(-1, grid) if maps else None,
        codes=torch.stack(codes, dim=1) if codes else None,
        ponder=weights @ torch.arange(1, len(records) + 1, device=device, dtype=weights.dtype),
        vq=torch.stack(losses).sum(0),
    )


def _for_all(values: Tensor, rows: Tensor, batch: int, absent: int = 0) -> Tensor:
    """(b, ...) values of some images -> (B, ...), `absent` for the others."""
    return values.new_full((batch, *values.shape[1:]), absent).index_copy(0, rows, values)
