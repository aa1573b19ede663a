"""One refinement step: organise, recall, refine (paper, sections 3.1-3.3).

B images, N = H W tokens, K slots, D channels.

A weighted sum and a linear map commute, W (x A) = (W x) A, and so do a dot product and a linear map. Keys and
values are therefore never projected token by token: what a step does to each token is a norm, three thin products
with the K slots, and the FFN.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from torch import Tensor, nn

from prism.model.attention import at_least_float32, normalised_over_tokens, slot_log_shares
from prism.model.compilation import exporting
from prism.model.evidence import shrunk
from prism.model.memory import Recall, SlotMemory
from prism.model.position import Positions

HIDDEN_BYTES = 4 << 20  # of the hidden layer worked on at a time on a CPU: stays in cache, and off fresh pages
LEAST_ROWS = 8  # of a band, which computes two rows more than it keeps


class Hoisted(NamedTuple):
    """What no step changes, computed once a forward."""

    positions: Positions  # p in the paper
    queries: Positions  # W_q p
    squared_norms: Tensor  # (M,), of the codes


class State(NamedTuple):
    """What a step changes, and what each image keeps through all steps."""

    tokens: Tensor  # (B, N, D), x^t
    slots: Tensor  # (B, K, D), l^t
    evidence: Tensor | None = None  # (B, N, 1), how much of each token was seen; None if all counts alike

    def of(self, rows: Tensor) -> "State":
        """Of some of the images."""
        evidence = None if self.evidence is None else self.evidence[rows]
        return State(self.tokens[rows], self.slots[rows], evidence)


class Watch(NamedTuple):
    """What a forward keeps beside its result."""

    losses: bool = False
    maps: bool = False


class Refinement(NamedTuple):
    """What one application of Phi gives, short of the slots of the next step."""

    tokens: Tensor  # (B, N, D), x^{t+1}
    where: Tensor  # (B, K, D), the restored keys: what `next_slots` needs
    shares: Tensor | None  # (B, K, N), the part of each token that each slot won; None unless asked for
    recall: Recall


class RefinementStep(nn.Module):
    """Phi in the paper: the block that a stage repeats with shared weights."""

    def __init__(
        self,
        dim: int,
        memory: SlotMemory,
        ffn_ratio: float,
        ffn_kernel: int,
        slot_ratio: float,
        layer_scale: float | None,
        drop_path: float,
    ):
        super().__init__()
        self.token_norm, self.slot_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        # without bias: a key bias would not cancel under a softmax over slots
        self.to_query = nn.Linear(dim, dim, bias=False)
        self.to_key = nn.Linear(dim, dim, bias=False)
        self.to_value = nn.Linear(dim, dim, bias=False)
        self.memory = memory
        self.token_scale = LayerScale(dim, layer_scale) if layer_scale else nn.Identity()
        self.slot_scale = LayerScale(dim, layer_scale) if layer_scale else nn.Identity()
        self.token_ffn = TokenFFN(dim, int(dim * ffn_ratio), ffn_kernel, drop_path)
        self.slot_ffn = SlotFFN(dim, int(dim * slot_ratio), drop_path)
        self.drop_path = DropPath(drop_path)

    def hoisted(self, positions: Positions) -> Hoisted:
        queries = positions.projected(self.to_query.weight)
        return Hoisted(positions, queries, self.memory.codebook.squared_norms())

    def forward(self, state: State, hoisted: Hoisted, watch: Watch) -> Refinement:
        (tokens, slots, evidence), (positions, queries, squared_norms) = state, hoisted
        normed = self.token_norm(tokens)  # (B, N, D)
        if evidence is not None:
            normed = normed * evidence  # to a hole slots come by its position alone
        weights, shares = self._organise(normed, slots, positions, watch.maps)
        gathered = weights @ normed  # (B, K, D)
        if evidence is not None:
            gathered = shrunk(gathered, weights @ evidence)
        where = self.to_key(gathered + positions.gathered(weights))  # k_grp in the paper
        what = self.to_value(gathered)  # v_grp
        where, what, recall = self.memory(where, what, squared_norms, watch.losses)
        returned = self._redistribute(where, self.drop_path(self.token_scale(what)), queries)
        return Refinement(self.token_ffn(tokens + returned, positions.grid, evidence), where, shares, recall)

    def next_slots(self, slots: Tensor, where: Tensor) -> Tensor:
        """l^{t+1} from l^t and the restored keys. Apart from `forward`, because the last step has no use for it."""
        return self.slot_ffn(slots + self.drop_path(self.slot_scale(where)))

    def _organise(
        self, normed: Tensor, slots: Tensor, positions: Positions, with_shares: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Slots compete for tokens: the weights W of slot attention, and the shares before they are normalised."""
        scale = normed.shape[-1] ** -0.5  # on the few queries, not on the many logits
        queries = self.to_query(self.slot_norm(slots)) @ self.to_key.weight * scale  # (B, K, D)
        logits = torch.baddbmm(positions.scores(queries), queries, normed.mT)  # (B, K, N)
        log_shares = slot_log_shares(logits)
        weights = normalised_over_tokens(log_shares).to(normed.dtype)
        return weights, log_shares.detach().exp() if with_shares else None

    def _redistribute(self, where: Tensor, what: Tensor, queries: Positions) -> Tensor:
        """Every position asks the restored slots what belongs there: x_back in the paper, (B, N, D)."""
        logits = at_least_float32(queries.scores(where * where.shape[-1] ** -0.5))  # (B, K, N)
        return logits.softmax(dim=-2).to(what.dtype).mT @ what


class TokenFFN(nn.Module):
    """x + FFN(LN(x)), with a depthwise convolution in the hidden layer: tokens otherwise never mix locally."""

    def __init__(self, dim: int, hidden: int, kernel: int, drop_path: float):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, hidden, bias=False)  # the norm before and the convolution after have one
        self.mix = nn.Conv2d(hidden, hidden, kernel, padding=kernel // 2, groups=hidden)
        self.contract = nn.Linear(hidden, dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor, grid: tuple[int, int], evidence: Tensor | None = None) -> Tensor:
        """With evidence, neighbours that were not seen are to the convolution what lies beyond the image's edge."""
        hidden_bytes = tokens.shape[0] * tokens.shape[1] * self.expand.out_features * tokens.element_size()
        may_slice = tokens.device.type == "cpu" and not torch.is_grad_enabled() and not exporting()
        in_slices = may_slice and hidden_bytes > HIDDEN_BYTES
        mixing = hidden_mixing_in_slices if in_slices else hidden_mixing
        weights = [self.expand.weight, self.mix.weight, self.mix.bias, self.contract.weight, self.contract.bias]
        normed = self.norm(tokens)
        if evidence is not None:
            normed = normed * evidence  # before the expansion, which has no bias: the same, on a quarter of the numbers
        return tokens + self.drop_path(mixing(normed, grid[0], grid[1], weights))


def hidden_mixing(
    tokens: Tensor, height: int, width: int, weights: list[Tensor], kept: tuple[int, int] | None = None
) -> Tensor:
    """Expand, mix, GELU, contract: (B, N, D) -> (B, N, D); of the rows [kept) of the grid only, if given."""
    expand, mix, mix_bias, contract, contract_bias = weights
    hidden = F.linear(tokens, expand)  # (B, N, 4D)
    hidden = hidden.unflatten(1, (height, width)).permute(0, 3, 1, 2)  # a channels_last view: no copy
    hidden = F.conv2d(hidden, mix, mix_bias, padding=mix.shape[-1] // 2, groups=len(mix))
    if kept is not None:
        hidden = hidden[:, :, kept[0] : kept[1]]
    return F.linear(F.gelu(hidden).permute(0, 2, 3, 1).flatten(1, 2), contract, contract_bias)


@torch.library.custom_op("prism::hidden_mixing_in_slices", mutates_args=())
def hidden_mixing_in_slices(tokens: Tensor, height: int, width: int, weights: list[Tensor]) -> Tensor:
    """The same, some images at a time, or some rows of one. A custom op: a compiler would undo what makes it fast."""
    bytes_a_row = width * len(weights[0]) * tokens.element_size()
    rows = max(LEAST_ROWS, HIDDEN_BYTES // bytes_a_row)
    if rows >= height:
        return torch.cat([hidden_mixing(part, height, width, weights) for part in tokens.split(rows // height)])
    bands = [
        _band(image, height, width, weights, top, rows) for image in tokens.split(1) for top in range(0, height, rows)
    ]
    return torch.cat(bands, dim=1).view_as(tokens)


def _band(tokens: Tensor, height: int, width: int, weights: list[Tensor], top: int, rows: int) -> Tensor:
    """Rows [top, top + rows) of one image. The convolution looks beyond either end, where there are rows."""
    bottom, beyond = min(top + rows, height), weights[1].shape[-1] // 2
    first, last = max(top - beyond, 0), min(bottom + beyond, height)
    part = tokens[:, first * width : last * width]
    return hidden_mixing(part, last - first, width, weights, (top - first, bottom - first))


@hidden_mixing_in_slices.register_fake
def _(tokens: Tensor, height: int, width: int, weights: list[Tensor]) -> Tensor:
    return torch.empty_like(tokens)


torch.library.register_autocast("prism::hidden_mixing_in_slices", "cpu", torch.bfloat16)


class SlotFFN(nn.Module):
    """l + FFN(LN(l))."""

    def __init__(self, dim: int, hidden: int, drop_path: float):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, slots: Tensor) -> Tensor:
        return slots + self.drop_path(self.contract(F.gelu(self.expand(self.norm(slots)))))


class LayerScale(nn.Module):
    """A learned gain per channel. Applied to slots, not to tokens: it commutes with the redistribution."""

    def __init__(self, dim: int, initial: float):
        super().__init__()
        self.gain = nn.Parameter(torch.full((dim,), initial))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain
