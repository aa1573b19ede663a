"""How sure a number is: deviations, bootstrap intervals, paired significance, calibration."""

import numpy as np
from scipy.stats import binomtest, bootstrap

MOST_INDICES = 2_000_000  # drawn at a time: 16 MB, whatever the number of images


def bootstrap_interval(values: np.ndarray, rounds: int = 1000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean of `values` (n,), resampled with replacement."""
    if len(values) < 2:
        return float(values.mean()), float(values.mean())
    at_once = max(1, MOST_INDICES // len(values))
    found = bootstrap((values,), np.mean, n_resamples=rounds, batch=at_once, method="percentile", rng=seed)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def paired_p_value(a_correct: np.ndarray, b_correct: np.ndarray) -> float:
    """McNemar's exact test: could two models be equally good, given the images on which just one is right?"""
    only_a = int((a_correct & ~b_correct).sum())
    only_b = int((~a_correct & b_correct).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def balanced_mean(values: np.ndarray, labels: np.ndarray) -> float:
    """Mean over classes of the mean of a class: the mix of classes, which differs between splits, has no say."""
    return float(np.mean([values[labels == label].mean() for label in np.unique(labels)]))


def calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: the gap of confidence and accuracy, averaged over bins of equal width."""
    edges = np.clip((confidence * bins).astype(int), 0, bins - 1)
    weight = np.bincount(edges, minlength=bins)
    gap = np.bincount(edges, confidence - correct, minlength=bins)
    return float(np.abs(gap[weight > 0]).sum() / len(confidence))
