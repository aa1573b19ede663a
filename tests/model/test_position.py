import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prism.model.position import sincos_positions
from tests.model import direct

LIKE = torch.zeros((), dtype=torch.float64)


@settings(max_examples=30, deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 9), dim=st.sampled_from([4, 8, 12, 32]))
def test_field_matches_the_definition(height: int, width: int, dim: int):
    field = sincos_positions(height, width, dim, LIKE)
    torch.testing.assert_close(field.dense(), direct.positions(height, width, dim, torch.float64))


def test_separable_operations_equal_dense_ones():
    field = sincos_positions(5, 7, 8, LIKE)
    vectors, weights = torch.randn(2, 3, 8, dtype=torch.float64), torch.rand(2, 3, 35, dtype=torch.float64)
    matrix = torch.randn(6, 8, dtype=torch.float64)
    torch.testing.assert_close(field.scores(vectors), vectors @ field.dense().T)
    torch.testing.assert_close(field.gathered(weights), weights @ field.dense())
    torch.testing.assert_close(field.projected(matrix).dense(), field.dense() @ matrix.T)


def test_unit_variance_and_independence_of_resolution():
    coarse, fine = sincos_positions(4, 4, 64, LIKE).dense(), sincos_positions(12, 12, 64, LIKE).dense()
    assert fine.square().mean().item() == pytest.approx(1, abs=1e-6)
    # the middle of each 3x3 block of the fine grid is the place of a cell of the coarse one
    torch.testing.assert_close(fine.view(12, 12, 64)[1::3, 1::3].reshape(16, 64), coarse)


def test_width_must_be_divisible_by_four():
    with pytest.raises(ValueError, match="divisible by 4, got 10"):
        sincos_positions(4, 4, 10, LIKE)
