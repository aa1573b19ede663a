import tracemalloc
from math import comb

import numpy as np
import pytest

from prism.metrics.significance import balanced_mean, bootstrap_interval, calibration_error, paired_p_value


def test_bootstrap_covers_the_mean_as_often_as_it_says():
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        low, high = bootstrap_interval((random.random(200) < 0.3).astype(float), rounds=300, seed=trial)
        covered += low <= 0.3 <= high
    assert 0.89 < covered / 200 < 0.99


def test_bootstrap_of_a_constant_is_a_point():
    assert bootstrap_interval(np.ones(50)) == (1.0, 1.0)


def test_mcnemar_by_hand():
    a = np.array([True] * 9 + [False] * 2 + [True] * 5)
    b = np.array([False] * 9 + [True] * 2 + [True] * 5)  # 9 only a, 2 only b, 5 both
    assert paired_p_value(a, b) == pytest.approx(2 * sum(comb(11, i) for i in range(3)) / 2**11)
    assert paired_p_value(a, b) == paired_p_value(b, a)
    assert paired_p_value(a, a) == 1


def test_balanced_mean_does_not_see_the_mix_of_classes():
    hit, labels = np.array([True, True, False, True]), np.array([4, 4, 7, 7])
    assert balanced_mean(hit, labels) == 0.75
    assert balanced_mean(np.append(hit, [True] * 9), np.append(labels, [4] * 9)) == 0.75


def test_calibration_by_hand():
    confidence = np.array([0.95, 0.95, 0.55, 0.55])
    correct = np.array([True, True, True, False])
    assert calibration_error(confidence, correct) == pytest.approx((2 * 0.05 + 2 * 0.05) / 4)
    assert calibration_error(np.array([1.0, 1.0]), np.array([True, True])) == 0


def test_an_interval_over_many_images_needs_little_memory():
    """1000 rounds of 50,000 images are 400 MB of indices if they are drawn at once."""
    values = (np.random.default_rng(0).random(50_000) < 0.7).astype(float)
    tracemalloc.start()
    low, high = bootstrap_interval(values, rounds=200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert low < values.mean() < high
    assert peak < 60e6
    assert bootstrap_interval(np.ones(1)) == (1.0, 1.0)
