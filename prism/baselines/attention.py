"""Multi-head attention as a function of queries, keys and values. Heads are contiguous runs of channels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from prism.model.compilation import exporting


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, N, C) -> (B, heads, N, C / heads)"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, heads, N, d) -> (B, N, heads * d)"""
    return x.transpose(1, 2).flatten(2)


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, heads: int, scale: float, bias: Tensor | None = None
) -> Tensor:
    """softmax(scale * q k^T + bias) v in each head: (B, N, C) queries, (B, M, C) keys and values -> (B, N, C).

    `bias` is (B, heads, N, M). The scale is explicit because some baselines scale by all channels, not by those of a
    head.
    """
    q, k, v = (split_heads(x, heads) for x in (queries, keys, values))
    mask = None if bias is None else bias.to(q.dtype)
    found = F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    if bias is not None and exporting():  # ONNX computes it in another memory layout, of which join_heads is no view
        found = found.clone(memory_format=torch.contiguous_format)
    return join_heads(found)
