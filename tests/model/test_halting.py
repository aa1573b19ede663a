import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prism.model.halting import HaltingUnit, expected_start, halting_weights
from tests.model.small import small_prism


@pytest.mark.parametrize(
    ("probabilities", "weights", "steps"),
    [
        ([0.995, 0.5, 0.5], [1, 0, 0], 1),  # halts at once; the remainder is everything
        ([1.0, 0.5, 0.5], [1, 0, 0], 1),
        ([0.3, 0.4, 0.5], [0.3, 0.4, 0.3], 3),
        ([0.6, 0.6, 0.6], [0.6, 0.4, 0], 2),
        ([0.1, 0.1, 0.1], [0.1, 0.1, 0.8], 3),  # never halts; the last step takes the remainder
        ([0.5, 0.49, 0.3], [0.5, 0.5, 0], 2),  # exactly 1 - epsilon counts
        ([0.5, 0.48, 0.3], [0.5, 0.48, 0.02], 3),
    ],
)
def test_chosen_sequences(probabilities: list[float], weights: list[float], steps: int):
    found, taken = halting_weights(torch.tensor([probabilities], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([weights], dtype=torch.float64))
    assert taken.tolist() == [steps]


def test_exactly_the_threshold_in_float32():
    assert halting_weights(torch.tensor([[0.75, 0.125, 0.1]]), epsilon=0.125)[1].tolist() == [2]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4), min_size=1, max_size=5))
def test_weights_sum_to_one_and_end_with_the_steps(rows: list[list[float]]):
    probabilities = torch.tensor(rows)
    weights, steps = halting_weights(probabilities)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(rows)))
    for row, p, last in zip(weights, probabilities, steps.tolist(), strict=True):
        assert torch.equal(row[: last - 1], p[: last - 1])
        assert row[last:].abs().sum() == 0
        assert p[: last - 1].double().sum() < 0.99 + 1e-6
        assert last == 4 or p[:last].double().sum() > 0.99 - 1e-6


def test_epsilon_moves_the_threshold():
    probabilities = torch.tensor([[0.5, 0.4, 0.3]])
    assert halting_weights(probabilities, epsilon=0.2)[1].tolist() == [2]
    assert halting_weights(probabilities, epsilon=0.01)[1].tolist() == [3]


def test_half_precision_is_lifted():
    weights, _ = halting_weights(torch.full((1, 4), 0.3).bfloat16())
    assert weights.dtype == torch.float32


def test_unit_starts_at_half_the_steps():
    unit = HaltingUnit(8, expected_start(5))
    torch.testing.assert_close(unit(torch.randn(3, 5, 8)), torch.full((3,), 0.4))
    _, steps = halting_weights(torch.full((1, 5), 0.4))
    assert steps.tolist() == [3]


def test_a_network_starts_where_it_is_told():
    network = small_prism(max_steps=3, halting_start=0.25)
    for stage in network.stages:
        torch.testing.assert_close(stage.halting.fc.bias.sigmoid(), torch.tensor([0.25]))  # pyright: ignore
    for wrong in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="halting_start must lie between 0 and 1"):
            small_prism(halting_start=wrong)


@pytest.mark.parametrize("max_steps", [1, 2, 3, 8])
def test_unit_starts_finite_for_any_number_of_steps(max_steps: int):
    unit = HaltingUnit(8, expected_start(max_steps))
    probability = unit(torch.randn(1, 5, 8))
    assert 0 < probability.item() < 1


def test_unit_is_a_sigmoid_of_the_mean_token():
    unit = HaltingUnit(4, 0.4).double()
    torch.nn.init.normal_(unit.fc.weight)
    tokens = torch.randn(2, 6, 4, dtype=torch.float64)
    score = [sum(tokens[b, n] @ unit.fc.weight[0] for n in range(6)) / 6 + unit.fc.bias[0] for b in range(2)]
    torch.testing.assert_close(unit(tokens), 1 / (1 + (-torch.stack(score)).exp()))
