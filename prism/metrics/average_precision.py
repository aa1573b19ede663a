"""COCO's measures of detection, for all objects and for some of them: the masked, the untouched, the occluded.

Truth is a dict as in COCO's JSON, results are a list as in its result files: boxes are (left, top, width, height),
masks compressed RLE. Numbers are shares from 0 to 1; COCO says -1 where there is nothing to find.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from faster_coco_eval.core import mask as rle
from torch import Tensor

from prism.data.annotations import Annotated, encode

Truth = dict[str, Any]
Result = dict[str, Any]
Kind = Literal["box", "mask"]

NUMBERS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")
NOTHING = -1.0  # what COCO says where there is nothing to find
STRICT = 0.75  # mask IoU of the Occluded and Separated COCO measure
CONFIDENT = 0.3  # and the lowest score that it counts


def ground_truth(images: Annotated) -> Truth:
    every = range(len(images))
    return {
        "images": [images.image(index) for index in every],
        "annotations": [annotation for index in every for annotation in images.annotations(index)],
        "categories": categories_of(images),
    }


def categories_of(images: Annotated) -> list[dict[str, Any]]:
    return [{"id": id, "name": name} for id, name in zip(images.categories, images.classes, strict=True)]


def as_results(found: Mapping[str, Tensor], image_id: int, categories: Sequence[int]) -> list[Result]:
    """What torchvision's detectors say of one image, as COCO's result files have it."""
    boxes = found["boxes"].cpu().double()
    boxes[:, 2:] -= boxes[:, :2]
    columns = zip(found["labels"].tolist(), found["scores"].tolist(), boxes.tolist(), strict=True)
    results = [
        {"image_id": image_id, "category_id": categories[label - 1], "bbox": box, "score": score}
        for label, score, box in columns
    ]
    if "masks" in found:
        for result, mask in zip(results, found["masks"].cpu().numpy(), strict=True):
            result["segmentation"] = encode(mask[0] > 0.5)
    return results


def coco_numbers(truth: Truth, results: Sequence[Result], kind: Kind) -> dict[str, float]:
    """COCO's twelve numbers, by faster-coco-eval."""
    # numbered anew: COCO takes the id 0 for "not matched"; copied: the evaluation writes into what it is given
    annotations = [{**annotation, "id": number} for number, annotation in enumerate(truth["annotations"], start=1)]
    if not annotations:
        return dict.fromkeys(NUMBERS, NOTHING)
    # without its box a result is small, medium or large by the area of its mask
    dropped = "segmentation" if kind == "box" else "bbox"
    found = [{key: value for key, value in result.items() if key != dropped} for result in results]
    known = COCO({**truth, "annotations": annotations})
    evaluation = COCOeval_faster(known, known.loadRes(found), "bbox" if kind == "box" else "segm")
    evaluation.run()
    return dict(zip(NUMBERS, (float(number) for number in evaluation.stats[: len(NUMBERS)]), strict=True))


def all_numbers(truth: Truth, results: Sequence[Result], masks: bool) -> dict[str, float]:
    """The twelve numbers of boxes and, if the detector gives them, of masks: `box AP`, ..., `mask AP`, ..."""
    kinds: tuple[Kind, ...] = ("box", "mask") if masks else ("box",)
    return {f"{kind} {name}": n for kind in kinds for name, n in coco_numbers(truth, results, kind).items()}


def only(truth: Truth, chosen: Collection[int]) -> Truth:
    """The truth of which only the annotations of these ids count.

    The others are regions to ignore, as crowds are in COCO: what is found there is neither right nor wrong.
    """
    annotations = [a if a["id"] in chosen else {**a, "iscrowd": 1} for a in truth["annotations"]]
    return {**truth, "annotations": annotations}


def instances(truth: Truth) -> set[int]:
    """Ids of all annotations that count; those of crowds do not."""
    return {a["id"] for a in truth["annotations"] if not a.get("iscrowd")}


def flagged(truth: Truth, flag: str = "occluded") -> set[int]:
    """Ids of the annotations that bear a flag, such as the annotators' `occluded`."""
    return {a["id"] for a in truth["annotations"] if a.get(flag) == 1 and not a.get("iscrowd")}


def by_subset(
    truth: Truth, results: Sequence[Result], subsets: Mapping[str, Collection[int]], masks: bool
) -> list[dict[str, Any]]:
    """A row for each subset of the annotations: how many, the twelve numbers, and the recall at mask IoU 0.75.

    What cannot be said is None: of an empty subset, or of the masks of a detector without.
    """
    kinds = [f"{kind} {name}" for kind in ("box", "mask") for name in NUMBERS]
    rows = []
    for name, chosen in subsets.items():
        known: dict[str, Any] = dict.fromkeys(kinds)
        if chosen:
            known |= all_numbers(only(truth, chosen), results, masks)
        recalled = recall(truth, results, chosen) if masks and chosen else None
        known = {key: None if value == NOTHING else value for key, value in known.items()}
        rows.append({"subset": name, "instances": len(chosen), **known, "mask recall75": recalled})
    return rows


def recall(truth: Truth, results: Sequence[Result], chosen: Collection[int], iou: float = STRICT) -> float:
    """The share of the chosen annotations that a detection of their class meets with at least this mask IoU.

    The measure of Occluded and Separated COCO: detections of a score below 0.3 do not count, and one may meet several
    annotations.
    """
    if not chosen:
        return NOTHING
    met: set[int] = set()
    for objects, detections in _by_image_and_class(truth, results):
        overlaps = np.array(rle.iou(_masks(detections), _masks(objects), [0] * len(objects)))
        met |= {item["id"] for item, best in zip(objects, overlaps.max(0), strict=True) if best >= iou}
    return len(met & {*chosen}) / len(chosen)


def _by_image_and_class(truth: Truth, results: Sequence[Result]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Annotations that count and the results that may meet them."""
    objects: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for annotation in truth["annotations"]:
        if not annotation.get("iscrowd"):
            objects[annotation["image_id"], annotation["category_id"]].append(annotation)
    detections: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for result in results:
        if result["score"] >= CONFIDENT:
            detections[result["image_id"], result["category_id"]].append(result)
    for key in objects:
        if key in detections:
            yield objects[key], detections[key]


def _masks(items: Sequence[Mapping[str, Any]]) -> list[Any]:
    """As the library's C++ wants them: counts as bytes."""
    masks = (item["segmentation"] for item in items)
    return [{**mask, "counts": mask["counts"].encode()} for mask in masks]
