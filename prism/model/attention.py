"""The two attentions of the paper (appendix A1.1), as pure functions.

B images, K slots, N tokens, D channels.
"""

import torch
from torch import Tensor


def slot_log_shares(logits: Tensor) -> Tensor:
    """Log of the share of each token that each slot wins: slots compete, so shares sum to 1 over slots.

    `logits` is A in the paper, (B, K, N). Half precision is lifted to float32: a competition between slots is
    decided by small differences.
    """
    return at_least_float32(logits).log_softmax(dim=-2)


def normalised_over_tokens(log_shares: Tensor) -> Tensor:
    """W in the paper: shares divided by their sum over tokens, so that a slot is a mean and not a sum.

    Taken in log space, where a slot that wins next to nothing still has weights that sum to 1 instead of 0 / 0.
    """
    return log_shares.softmax(dim=-1)


def slot_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """Slot attention's weights W (paper, equation A3): softmax over slots, then normalised over tokens.

    (B, K, D) queries of the slots, (B, N, D) keys of the tokens -> (B, K, N), each row sums to 1 over N.
    """
    logits = queries @ keys.mT * keys.shape[-1] ** -0.5
    return normalised_over_tokens(slot_log_shares(logits))


def cross_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """CA in the paper (equation A2): every query takes a mean of the values, weighted by softmax over keys.

    (B, N, D) or (N, D) queries, (B, K, D) keys and values -> (B, N, D).
    """
    logits = queries @ keys.mT * keys.shape[-1] ** -0.5  # (B, N, K)
    return at_least_float32(logits).softmax(dim=-1).to(values.dtype) @ values


def at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
