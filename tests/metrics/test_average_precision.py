import contextlib
import io
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from prism.data.annotations import encode
from prism.data.objects import SceneImages
from prism.metrics.average_precision import (
    NOTHING,
    NUMBERS,
    Kind,
    Result,
    Truth,
    all_numbers,
    as_results,
    by_subset,
    coco_numbers,
    flagged,
    ground_truth,
    instances,
    only,
    recall,
)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return ground_truth(SceneImages("val", 12, 64))


def as_detections(truth: Truth) -> list[Result]:
    return [
        dict(score=0.9, **{key: a[key] for key in ("image_id", "category_id", "bbox", "segmentation")})
        for a in truth["annotations"]
    ]


def random_detections(truth: Truth, seed: int = 0) -> list[Result]:
    """Near the truth, far from it, of wrong classes, twice, and with equal scores."""
    random = np.random.default_rng(seed)
    found = []
    for a in truth["annotations"]:
        for _ in range(random.integers(0, 4)):
            shift, class_ = random.integers(-6, 7, 2), a["category_id"]
            if random.random() < 0.2:
                class_ = int(random.integers(1, 11))
            side = truth["images"][0]["width"]
            left, top, width, height = (int(n) for n in a["bbox"])
            left, top = max(0, left + shift[0]), max(0, top + shift[1])
            mask = np.zeros((side, side), bool)
            mask[top : top + height, left : left + width] = True
            found.append(
                dict(
                    image_id=a["image_id"],
                    category_id=class_,
                    bbox=[float(left), float(top), float(width), float(height)],
                    segmentation=encode(mask),
                    score=round(float(random.random()), 1),
                )
            )
    return found


def by_pycocotools(truth: Truth, results: list[Result], kind: Kind) -> list[float]:
    dropped = {"box": "segmentation", "mask": "bbox"}[kind]
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = {**truth, "info": {}, "annotations": [dict(a) for a in truth["annotations"]]}
        known.createIndex()
        found = known.loadRes([{k: v for k, v in r.items() if k != dropped} for r in results])
        evaluation = COCOeval(known, found, {"box": "bbox", "mask": "segm"}[kind])
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [float(number) for number in evaluation.stats]


def test_the_truth_as_detections_is_perfect(truth: Truth):
    found = all_numbers(truth, as_detections(truth), masks=True)
    for kind in ("box", "mask"):
        for name in ("AP", "AP50", "AP75", "AR100"):
            assert found[f"{kind} {name}"] == 1.0


@pytest.mark.parametrize("kind", ["box", "mask"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_numbers_are_those_of_pycocotools(truth: Truth, kind: Kind, seed: int):
    results = random_detections(truth, seed)
    for asked in (truth, only(truth, flagged(truth))):
        found = list(coco_numbers(asked, results, kind).values())
        assert found == pytest.approx(by_pycocotools(asked, results, kind), abs=1e-6)
        assert 0 < found[0] < 1


def test_nothing_is_written_into_what_is_given(truth: Truth):
    results = random_detections(truth)
    before = repr((truth, results))
    all_numbers(truth, results, masks=True)
    recall(truth, results, instances(truth))
    assert repr((truth, results)) == before


def test_an_annotation_of_id_0_is_one_like_others(truth: Truth):
    moved = {**truth, "annotations": [{**a, "id": a["id"] - 1} for a in truth["annotations"]]}
    assert moved["annotations"][0]["id"] == 0
    assert all_numbers(moved, as_detections(moved), masks=False)["box AP"] == 1.0


def test_a_subset_ignores_what_is_found_elsewhere(truth: Truth):
    """Neither finding the others nor missing them changes anything."""
    chosen = flagged(truth)
    assert 0 < len(chosen) < len(instances(truth))
    everything = as_detections(truth)
    pairs = zip(everything, truth["annotations"], strict=True)
    theirs = [result for result, a in pairs if a["id"] in chosen]
    for results in (everything, theirs):
        assert coco_numbers(only(truth, chosen), results, "mask")["AP"] == 1.0
    wrong = [{**result, "category_id": result["category_id"] % 10 + 1, "score": 1.0} for result in everything]
    assert coco_numbers(only(truth, chosen), everything + wrong, "mask")["AP"] < 1.0


def test_an_empty_answer_and_an_empty_question(truth: Truth):
    assert coco_numbers(truth, [], "box")["AP"] == 0
    nothing = {**truth, "annotations": []}
    assert coco_numbers(nothing, as_detections(truth), "box") == dict.fromkeys(NUMBERS, NOTHING)
    rows = by_subset(truth, [], {"none": set()}, masks=True)
    assert rows[0]["box AP"] is None
    assert rows[0]["mask recall75"] is None


def test_recall_counts_objects_that_any_confident_detection_meets():
    def square(left: int, side: int) -> np.ndarray:
        mask = np.zeros((20, 40), bool)
        mask[2 : 2 + side, left : left + side] = True
        return mask

    def item(id: int, mask: np.ndarray, **others: Any) -> dict[str, Any]:
        return dict(id=id, image_id=1, category_id=1, segmentation=encode(mask)) | others

    truth = dict(annotations=[item(1, square(2, 10)), item(2, square(2, 9)), item(3, square(25, 8))])
    everything = {1, 2, 3}
    one = [item(0, square(2, 10), score=0.3)]
    assert recall(truth, one, everything) == pytest.approx(2 / 3), "it meets two well enough"
    assert recall(truth, one, {1}) == recall(truth, one, {2}) == 1
    assert recall(truth, [item(0, square(2, 10), score=0.29)], everything) == 0, "not sure enough"
    assert recall(truth, [item(0, square(25, 8), score=1, category_id=2)], {3}) == 0, "of another class"
    assert recall(truth, [item(0, square(25, 7), score=1)], {3}) == 1, "IoU 49/64"
    assert recall(truth, [item(0, square(25, 6), score=1)], {3}) == 0, "IoU 36/64"
    assert recall(truth, one, set()) == NOTHING


def test_what_torchvision_says_becomes_coco_results():
    masks = torch.zeros(1, 1, 6, 8, dtype=torch.bool)
    masks[0, 0, 1:3, 2:5] = True
    found = dict(
        boxes=torch.tensor([[2.0, 1, 5, 3]]), labels=torch.tensor([2]), scores=torch.tensor([0.5]), masks=masks
    )
    (result,) = as_results(found, 17, [10, 30])
    assert (result["image_id"], result["category_id"], result["bbox"], result["score"]) == (17, 30, [2, 1, 3, 2], 0.5)
    assert result["segmentation"] == encode(masks[0, 0].numpy())
    assert "segmentation" not in as_results({k: v for k, v in found.items() if k != "masks"}, 17, [10, 30])[0]
