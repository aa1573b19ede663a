"""Bi-level routing attention: windows choose windows, then tokens attend within the choice (BiFormer).

B images, H x W tokens of C channels in S x S windows of P tokens each; every window attends to R windows.
"""

import torch
from torch import Tensor, nn

from prism.baselines.attention import attend
from prism.baselines.channels_last import DepthwiseConv, crop, pad_to_multiple


def to_windows(x: Tensor, per_side: int) -> Tensor:
    """(B, H, W, C) -> (B, S * S, P, C): windows and the tokens within them row by row."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, per_side, height // per_side, per_side, width // per_side, channels)
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def from_windows(x: Tensor, per_side: int, height: int, width: int) -> Tensor:
    """The inverse of `to_windows`."""
    batch, _, _, channels = x.shape
    x = x.reshape(batch, per_side, per_side, height // per_side, width // per_side, channels)
    return x.transpose(2, 3).reshape(batch, height, width, channels)


def choose_windows(queries: Tensor, keys: Tensor, count: int) -> Tensor:
    """The `count` windows whose mean key is most similar to the mean query, over all channels and so for all heads.

    (B, S * S, P, C) queries and keys -> (B, S * S, R) indices. A window need not choose itself.
    """
    similarity = queries.detach().mean(2) @ keys.detach().mean(2).mT  # not scaled: that keeps the order
    return similarity.topk(count, sorted=False).indices


def gather_windows(x: Tensor, chosen: Tensor) -> Tensor:
    """(B, S * S, P, C) windows and (B, S * S, R) indices -> (B, S * S, R * P, C)."""
    batch, windows, tokens, channels = x.shape
    first = torch.arange(batch, device=x.device)[:, None, None] * windows
    found = x.flatten(0, 1).index_select(0, (chosen + first).flatten())
    return found.reshape(batch, windows, chosen.shape[2] * tokens, channels)


def bi_level_attention(queries: Tensor, keys: Tensor, values: Tensor, per_side: int, count: int, heads: int) -> Tensor:
    """Every token attends to all tokens of the windows that its own window has chosen, in one softmax.

    (B, H', W', C) queries, (B, H, W, C) keys and values, all sides multiples of S -> (B, H', W', C). Logits are scaled
    by the square root of all channels, as published, not of those of a head.
    """
    height, width, channels = queries.shape[1:]
    scale = channels**-0.5
    if count == per_side**2:  # all windows: there is nothing to route
        out = attend(queries.flatten(1, 2), keys.flatten(1, 2), values.flatten(1, 2), heads, scale)
        return out.unflatten(1, (height, width))
    q, k = to_windows(queries, per_side), to_windows(keys, per_side)
    chosen = choose_windows(q, k, count)
    k, v = gather_windows(k, chosen), gather_windows(to_windows(values, per_side), chosen)  # (B, S * S, R * P, C)
    out = attend(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), heads, scale)  # a window is a sequence of its own
    return from_windows(out.unflatten(0, q.shape[:2]), per_side, height, width)


def check_routing(dim: int, heads: int, per_side: int, count: int) -> None:
    if not heads or dim % heads:
        raise ValueError(f"{dim} channels do not divide into {heads} heads")
    if not 1 <= count <= per_side**2:
        raise ValueError(f"each of {per_side} x {per_side} windows can choose 1 to {per_side**2} of them, got {count}")


class BiLevelRoutingAttention(nn.Module):
    """Routed attention plus a depthwise convolution of the values, for local detail across window borders (LePE)."""

    def __init__(self, dim: int, heads: int, windows: int, routed: int, lepe_kernel: int = 5):
        super().__init__()
        check_routing(dim, heads, windows, routed)
        self.heads, self.windows, self.routed = heads, windows, routed
        self.qkv = nn.Linear(dim, 3 * dim)
        self.lepe = DepthwiseConv(dim, lepe_kernel)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        # Padded before the projection: padded tokens carry its bias, and count as keys and in the means of windows.
        q, k, v = self.qkv(pad_to_multiple(x, self.windows)).chunk(3, dim=-1)
        out = bi_level_attention(q, k, v, self.windows, self.routed, self.heads)
        return crop(self.proj(out + self.lepe(v)), height, width)
