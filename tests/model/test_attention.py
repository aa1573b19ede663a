import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prism.model.attention import cross_attention, slot_weights


def test_slot_weights_by_hand():
    """Equation A3 with loops in float64."""
    queries, keys = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 4, dtype=torch.float64)
    weights = slot_weights(queries, keys)
    for b in range(2):
        scores = [[sum(queries[b, k] * keys[b, n]).item() / math.sqrt(4) for n in range(5)] for k in range(3)]
        shares = [
            [math.exp(scores[k][n]) / sum(math.exp(scores[j][n]) for j in range(3)) for n in range(5)] for k in range(3)
        ]
        for k in range(3):
            for n in range(5):
                assert weights[b, k, n].item() == pytest.approx(shares[k][n] / sum(shares[k]), abs=1e-12)


def test_cross_attention_by_hand():
    """Equation A2 with loops in float64."""
    queries = torch.randn(5, 4, dtype=torch.float64)
    keys, values = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 6, dtype=torch.float64)
    returned = cross_attention(queries, keys, values)
    assert returned.shape == (2, 5, 6)
    for b in range(2):
        for n in range(5):
            weights = [math.exp(sum(queries[n] * keys[b, k]).item() / 2) for k in range(3)]
            expected = sum(w / sum(weights) * values[b, k] for k, w in enumerate(weights))
            torch.testing.assert_close(returned[b, n], expected, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(slots=st.integers(1, 6), tokens=st.integers(1, 9), scale=st.sampled_from([0.0, 1.0, 30.0, 300.0]))
def test_slot_weights_are_means(slots: int, tokens: int, scale: float):
    """Every slot's weights sum to 1 over tokens, even where a slot wins nothing at all."""
    weights = slot_weights(scale * torch.randn(2, slots, 8), torch.randn(2, tokens, 8))
    assert weights.shape == (2, slots, tokens)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, slots))


def test_weights_are_computed_in_float32():
    queries, keys = torch.randn(1, 4, 8).bfloat16(), torch.randn(1, 6, 8).bfloat16()
    assert slot_weights(queries, keys).dtype == torch.float32
    torch.testing.assert_close(slot_weights(queries, keys).sum(-1), torch.ones(1, 4))
