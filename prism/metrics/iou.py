"""Scores of labelled pixels, from counts over a whole data set: the mean over images is another number.

C classes. Truth and prediction are (..., H, W) of class numbers; a pixel whose truth is VOID counts nowhere.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from prism.data.label_maps import VOID

NEAR = 0.02  # of the diagonal: how far from a contour boundary IoU looks


class Counts(NamedTuple):
    """What images add up to."""

    pixels: Tensor  # (2, C, C): of visible and of hidden pixels, by truth and by prediction
    contours: Tensor  # (2, C): pixels near a class's contours in truth and prediction, and in either of them


def count(truth: Tensor, prediction: Tensor, classes: int, hidden: Tensor | None = None) -> Counts:
    """Counts of images of one size, (B, H, W) each; `hidden` says which pixels could not be seen."""
    hidden = torch.zeros_like(truth, dtype=torch.bool) if hidden is None else hidden
    known = truth != VOID
    cells = (hidden[known].long() * classes + truth[known].long()) * classes + prediction[known].long()
    pixels = torch.bincount(cells, minlength=2 * classes**2).view(2, classes, classes)
    return Counts(pixels, _contour_counts(truth, prediction, classes))


def added(left: Counts, right: Counts) -> Counts:
    return Counts(left.pixels + right.pixels, left.contours + right.contours)


def scores(counts: Counts) -> dict[str, float | None]:
    """mIoU, pixel accuracy, boundary IoU; and mIoU of visible and of hidden pixels, where any are hidden."""
    visible, hidden = counts.pixels
    if not counts.pixels.any():
        raise ValueError("no pixel of these images is labelled: their masks are all void")
    split = bool(hidden.any())
    return {
        "mIoU": mean_iou(visible + hidden),
        "pixel accuracy": pixel_accuracy(visible + hidden),
        "boundary IoU": boundary_iou(counts.contours),
        "visible mIoU": mean_iou(visible) if split else None,
        "hidden mIoU": mean_iou(hidden) if split else None,
    }


def iou(confusion: Tensor) -> Tensor:
    """Intersection over union of each class (C,), from pixels by truth and prediction; nan for a class in neither."""
    hits = confusion.diagonal().double()
    return hits / (confusion.sum(0) + confusion.sum(1) - hits)


def mean_iou(confusion: Tensor) -> float:
    """Over the classes that truth or prediction has."""
    return float(iou(confusion).nanmean())


def pixel_accuracy(confusion: Tensor) -> float:
    return float(confusion.diagonal().sum().double() / confusion.sum())


def boundary_iou(contours: Tensor) -> float:
    """Boundary IoU (Cheng and others, 2021), each class over the whole set, then the mean over classes."""
    common, either = contours.double()
    return float((common / either).nanmean())


def class_rows(counts: Counts, names: list[str]) -> list[dict[str, Any]]:
    """One row per class: its IoU, and its share of the pixels."""
    confusion = counts.pixels.sum(0)
    shares = confusion.sum(1) / confusion.sum()
    found = zip(names, iou(confusion).tolist(), shares.tolist(), strict=True)
    return [{"class": name, "IoU": None if math.isnan(value) else value, "share": part} for name, value, part in found]


def near_contour(labels: Tensor, distance: int) -> Tensor:
    """Pixels at most `distance` from one of another class or from the image's edge: (B, H, W) of bool.

    Its authors erode the mask of each class by squares: a pixel goes exactly if its square holds more than one class.
    """
    framed = F.pad(labels.float(), [distance] * 4, value=-1.0)[:, None]
    highest = _highest_around(framed, distance)
    lowest = -_highest_around(-framed, distance)
    return (highest != lowest)[:, 0]


def _contour_counts(truth: Tensor, prediction: Tensor, classes: int) -> Tensor:
    height, width = truth.shape[-2:]
    distance = max(1, round(NEAR * math.hypot(height, width)))
    known = truth != VOID
    # void parts are contours of both alike, so that nothing is asked of a prediction there
    seen = torch.where(known, prediction.long(), VOID)
    in_truth = near_contour(truth, distance) & known
    in_prediction = near_contour(seen, distance) & known
    both = in_truth & in_prediction & (truth == seen)
    common, truths, predictions = (
        torch.bincount(labels[chosen].long(), minlength=classes)
        for labels, chosen in ((truth, both), (truth, in_truth), (seen, in_prediction))
    )
    return torch.stack([common, truths + predictions - common])


def _highest_around(values: Tensor, distance: int) -> Tensor:
    """Maxima over squares, by rows and then by columns; the frame of `distance` is used up."""
    side = 2 * distance + 1
    return F.max_pool2d(F.max_pool2d(values, (1, side), stride=1), (side, 1), stride=1)
