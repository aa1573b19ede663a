import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.classification import MulticlassJaccardIndex

from prism.data.label_maps import VOID
from prism.metrics.iou import (
    Counts,
    added,
    boundary_iou,
    class_rows,
    count,
    iou,
    mean_iou,
    near_contour,
    pixel_accuracy,
    scores,
)


def patches(seed: int, classes: int, size: tuple[int, int] = (23, 31), void: bool = True) -> Tensor:
    """Labels in patches, some of them void: (2, H, W)."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(classes + void, (2, 1, 5, 6), generator=generator)
    labels = F.interpolate(coarse.float(), size, mode="nearest")[:, 0].long()
    return torch.where(labels == classes, VOID, labels)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 12))
def test_miou_is_torchmetrics(seed: int, classes: int):
    truth = patches(seed, classes)
    prediction = patches(seed + 1, classes, void=False)
    theirs = MulticlassJaccardIndex(classes, average="macro", ignore_index=VOID)
    alone = MulticlassJaccardIndex(classes, average="none", ignore_index=VOID)
    total = Counts(torch.zeros(2, classes, classes).long(), torch.zeros(2, classes).long())
    for one, other in zip(truth, prediction, strict=True):  # image by image, as a run does
        theirs.update(other[None], one[None])
        alone.update(other[None], one[None])
        total = added(total, count(one[None], other[None], classes))
    confusion = total.pixels.sum(0)
    assert mean_iou(confusion) == pytest.approx(float(theirs.compute()), abs=1e-6)
    torch.testing.assert_close(iou(confusion).nan_to_num(0), alone.compute().double(), atol=1e-6, rtol=0)


def test_a_class_in_neither_is_left_out_and_one_in_either_counts():
    truth, prediction = torch.tensor([[[0, 0, 1, 1]]]), torch.tensor([[[0, 0, 1, 2]]])
    confusion = count(truth, prediction, 5).pixels[0]
    assert iou(confusion)[:3].tolist() == [1, 0.5, 0]
    assert iou(confusion)[3:].isnan().all()
    assert mean_iou(confusion) == 0.5
    assert pixel_accuracy(confusion) == 0.75
    rows = class_rows(count(truth, prediction, 5), list("abcde"))
    assert rows[1] == {"class": "b", "IoU": 0.5, "share": 0.5}
    assert rows[4]["IoU"] is None


def test_the_mean_over_images_is_another_number():
    truth = torch.tensor([[[0, 0, 0, 1]], [[1, 1, 1, 1]]])
    prediction = torch.tensor([[[0, 0, 0, 0]], [[1, 1, 1, 1]]])
    whole = mean_iou(count(truth, prediction, 2).pixels[0])
    apart = [mean_iou(count(t[None], p[None], 2).pixels[0]) for t, p in zip(truth, prediction, strict=True)]
    assert whole == pytest.approx((3 / 4 + 4 / 5) / 2)
    assert sum(apart) / 2 != pytest.approx(whole)


@pytest.mark.parametrize("seed", range(5))
def test_a_perfect_prediction_scores_one_and_void_never_counts(seed: int):
    truth = patches(seed, 6)
    guess = torch.randint(6, truth.shape)
    prediction = torch.where(truth == VOID, guess, truth)  # anything at all where nobody knows
    found = scores(count(truth, prediction, 6, torch.rand(truth.shape) < 0.3))
    assert set(found.values()) == {1.0}
    other = patches(seed + 100, 6, void=False)
    changed = torch.where(truth == VOID, (other + 1) % 6, other)
    for left, right in zip(count(truth, other, 6), count(truth, changed, 6), strict=True):
        assert torch.equal(left, right)


def test_visible_and_hidden_pixels_make_up_all():
    truth, prediction = patches(0, 4), patches(1, 4, void=False)
    hidden = torch.rand(truth.shape) < 0.4
    apart = count(truth, prediction, 4, hidden)
    assert torch.equal(apart.pixels.sum(0), count(truth, prediction, 4).pixels[0])
    assert int(apart.pixels[1].sum()) == int((hidden & (truth != VOID)).sum())
    right_where_seen = torch.where(hidden & (truth != VOID), (truth + 1) % 4, truth.clamp(max=3))
    found = scores(count(truth, right_where_seen, 4, hidden))
    assert found["visible mIoU"] == 1
    assert found["hidden mIoU"] == 0
    assert scores(count(truth, prediction, 4))["hidden mIoU"] is None


def eroded(mask: Tensor, distance: int) -> Tensor:
    """As the authors do it: the mask framed by nothing, eroded by 3 x 3 again and again."""
    for _ in range(distance):
        mask = -F.max_pool2d(-F.pad(mask.float(), [1] * 4)[None, None], 3, stride=1)[0, 0]
    return mask.bool()


@pytest.mark.parametrize("distance", [1, 2, 4])
def test_contours_are_those_of_each_classs_erosion(distance: int):
    labels = patches(3, 5, (40, 33), void=False)
    near = near_contour(labels, distance)
    for image, found in zip(labels, near, strict=True):
        for number in range(5):
            own = image == number
            assert torch.equal(own & found, own & ~eroded(own, distance))


def test_boundary_iou_by_hand():
    truth, prediction = patches(4, 3, (50, 60), void=False), patches(5, 3, (50, 60), void=False)
    distance = round(0.02 * math.hypot(50, 60))
    common, either = torch.zeros(3), torch.zeros(3)
    for one, other in zip(truth, prediction, strict=True):
        for number in range(3):
            left, right = ((m == number) & ~eroded(m == number, distance) for m in (one, other))
            common[number] += (left & right).sum()
            either[number] += (left | right).sum()
    found = count(truth, prediction, 3)
    assert torch.equal(found.contours.float(), torch.stack([common, either]))
    assert boundary_iou(found.contours) == pytest.approx(float((common / either).mean()))


def test_boundary_iou_falls_faster_than_iou_when_an_outline_moves():
    truth = torch.zeros(1, 100, 100).long()
    truth[:, 20:80, 20:80] = 1
    found = scores(count(truth, truth.roll(2, -1), 2))
    assert found["boundary IoU"] is not None
    assert found["mIoU"] is not None
    assert found["boundary IoU"] < found["mIoU"] - 0.1
