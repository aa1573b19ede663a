"""Attention, convolution and sampling written out, for the equations of the baselines to be held against."""

import math
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def randomised(module: Module) -> Module:
    """Every parameter far from its start, in float64."""
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def multi_head(q: Tensor, k: Tensor, v: Tensor, heads: int, scale: float, mask: Tensor | None = None) -> Tensor:
    """(B, N, C) and (B, M, C): head by head, on contiguous runs of channels. `mask` (B, N, M) is True where allowed,
    or a bias of (B, heads, N, M)."""
    out, width = [], q.shape[-1] // heads
    for head in range(heads):
        run = slice(head * width, (head + 1) * width)
        logits = torch.einsum("bnc,bmc->bnm", q[..., run], k[..., run]) * scale
        if mask is not None and mask.dtype == torch.bool:
            logits = logits.masked_fill(~mask, -math.inf)
        elif mask is not None:
            logits = logits + mask[:, head]
        weights = logits.exp() / logits.exp().sum(dim=-1, keepdim=True)
        out.append(torch.einsum("bnm,bmc->bnc", weights, v[..., run]))
    return torch.cat(out, dim=-1)


def depthwise(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """(B, H, W, C), each channel on its own."""
    pad, stride = conv.kernel_size[0] // 2, conv.stride[0]
    channels = [
        F.conv2d(x[None, ..., channel].transpose(0, 1), conv.weight[channel : channel + 1], padding=pad, stride=stride)
        for channel in range(x.shape[-1])
    ]
    out = torch.cat(channels, dim=1).permute(0, 2, 3, 1)
    return out if conv.bias is None else out + conv.bias


def window_of_each_token(height: int, width: int, per_side: int) -> Tensor:
    """(H * W,) numbers of windows, row by row."""
    row, column = torch.arange(height) // (height // per_side), torch.arange(width) // (width // per_side)
    return (row[:, None] * per_side + column).flatten()


def layer_norm(x: Tensor, norm: nn.LayerNorm, eps: float) -> Tensor:
    var, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / (var + eps).sqrt() * norm.weight + norm.bias


def bilinear(table: Tensor, y: float, x: float) -> Tensor:
    """(C, H, W) at a point of [-1, 1] x [-1, 1] whose corners are the centres of corner cells; zero outside."""
    height, width = table.shape[1:]
    row, column = (y + 1) / 2 * (height - 1), (x + 1) / 2 * (width - 1)
    total = torch.zeros_like(table[:, 0, 0])
    for i in (math.floor(row), math.floor(row) + 1):
        for j in (math.floor(column), math.floor(column) + 1):
            if 0 <= i < height and 0 <= j < width:
                total = total + table[:, i, j] * (1 - abs(row - i)) * (1 - abs(column - j))
    return total
