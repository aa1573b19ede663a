"""COCO's JSON, read with suspicion: what cannot be used is skipped and named."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
from faster_coco_eval.core import mask as rle
from PIL import Image

from prism.data.annotations import Annotation, Target, encode, target_of
from prism.data.images import THINNEST, Unreadable, fingerprint_files, read_image
from prism.model.checks import MOST, read_json, short

LONGEST_SIDE = 100_000  # pixels
FLAGS = ("occluded", "masked", "hidden", "hidden_by_other", "hidden_besides")  # the last as it was once called
NAMED = 5  # how many broken annotations a summary names


class CocoImages:
    """The images of a folder with their objects by a COCO JSON. Category ids may have gaps; labels are 1, 2, ...

    Annotations that cannot be used are skipped, and so are images without a file and all their annotations; `broken`
    names each and says why. An image that cannot be read or is not of the size that the JSON says raises Unreadable:
    training skips it, evaluation stops; so does one thinner than 1 to `thinnest`. Without `masks` annotations may have
    boxes only. `limit` takes only so many images, evenly spread.
    """

    def __init__(
        self, file: Path, folder: Path, masks: bool = True, limit: int | None = None, thinnest: int = THINNEST
    ):
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
        found = _read(file)
        self.file, self.folder, self.masks, self.thinnest = file, folder, masks, thinnest
        self.broken: list[str] = []
        names = {entry["id"]: _name(entry) for entry in found["categories"]}
        self.categories = sorted(names)
        self.classes = [names[id] for id in self.categories]
        listed = self._once(found["images"], "image")
        missing = _missing(folder, (image["file_name"] for image in listed))
        self.broken += [
            f"image {image['id']}: there is no file {image['file_name'][:200]}"
            for image in listed
            if image["file_name"] in missing
        ]
        listed = [{key: image[key] for key in ("id", "file_name", "width", "height")} for image in listed]
        images = [image for image in listed if image["file_name"] not in missing]
        if not images:
            raise ValueError(f"none of the images in {file} is in {folder}")
        kept: dict[int, list[Annotation]] = {image["id"]: [] for image in images}
        sizes = {image["id"]: (image["height"], image["width"]) for image in listed}
        for annotation in self._once(found["annotations"], "annotation"):
            try:
                checked = _checked(annotation, sizes, names, masks)
                if checked["image_id"] not in kept:
                    raise _Broken(f"its image {checked['image_id']} has no file")
                kept[checked["image_id"]].append(checked)
            except _Broken as error:
                self.broken.append(f"annotation {annotation['id']}: {error}")
        if limit is not None:
            count = min(limit, len(images))
            images = [images[number * len(images) // count] for number in range(count)]
        self._images = images
        # One string per image: worker processes copy every Python object that they touch, and COCO has a million.
        self._annotations = [json.dumps(sorted(kept[image["id"]], key=lambda a: a["id"])) for image in images]

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Image.Image, Target]:
        record = self._images[index]
        try:
            image = read_image(self.folder / record["file_name"], self.thinnest)
        except FileNotFoundError as error:
            raise Unreadable(str(error)) from None
        size = (record["height"], record["width"])
        if image.size != size[::-1]:
            raise Unreadable(f"{self.name(index)} is {image.width} x {image.height}, not as {self.file.name} says")
        labels = {id: label for label, id in enumerate(self.categories, start=1)}
        return image, target_of(self.annotations(index), record["id"], size, labels, self.masks)

    def name(self, index: int) -> str:
        return str(self.folder / self._images[index]["file_name"])

    def image(self, index: int) -> dict[str, Any]:
        return self._images[index]

    def annotations(self, index: int) -> list[Annotation]:
        """By rising id, so that what is drawn for them does not depend on the order in the file."""
        return json.loads(self._annotations[index])

    def fingerprint(self) -> str:
        """Of every file, and of all that is known about images and objects; pixels are not read for it."""
        files = fingerprint_files((self.name(index), image["id"]) for index, image in enumerate(self._images))
        found = hashlib.sha256(json.dumps([files, self.categories, self.classes, self._images]).encode())
        for annotations in self._annotations:
            found.update(annotations.encode())
        return found.hexdigest()

    def groups(self) -> list[int]:
        """A number for each image's shape, from tall to wide in steps of the root of 2: batches of one need little
        padding."""
        ratios = [image["width"] / image["height"] for image in self._images]
        return [max(-2, min(2, round(2 * log2(ratio)))) for ratio in ratios]

    def summary(self) -> str:
        """What was skipped, in one sentence; empty if nothing was."""
        if not self.broken:
            return ""
        more = ", ..." if len(self.broken) > NAMED else ""
        entries = "entry is" if len(self.broken) == 1 else "entries are"
        return f"{self.file.name}: {len(self.broken)} broken {entries} skipped: {'; '.join(self.broken[:NAMED])}{more}"

    def _once(self, entries: Sequence[Any], kind: str) -> list[dict[str, Any]]:
        """The entries with an id of their own; of several with one id the first."""
        counts: Counter[int] = Counter()
        kept = []
        for place, entry in enumerate(entries):
            if not isinstance(entry, dict) or not _is_id(entry.get("id")):
                self.broken.append(f"{kind} number {place} of the list: it has no id")
                continue
            counts[entry["id"]] += 1
            if counts[entry["id"]] > 1:
                self.broken.append(f"{kind} {entry['id']}: its id is taken")
            else:
                kept.append(entry)
        return kept


class _Broken(ValueError):
    """Why an annotation cannot be used."""


def _read(file: Path) -> dict[str, Any]:
    """The three lists of a COCO JSON, or a sentence why it is none."""
    if not file.exists():
        raise FileNotFoundError(f"there is no file {file}")
    found = read_json(file)
    for key in ("images", "annotations", "categories"):
        if not isinstance(found, dict) or not isinstance(found.get(key), list):
            raise ValueError(f"{file} is not a COCO JSON: it has no list of {key}")
    for entry in found["images"]:
        if not isinstance(entry, dict) or not all(_is_side(entry.get(key)) for key in ("width", "height")):
            raise ValueError(f"{file} is not a COCO JSON: an image has no width and height in {short(entry)}")
        if not isinstance(entry.get("file_name"), str):
            raise ValueError(f"{file} is not a COCO JSON: an image has no file_name in {short(entry)}")
    for entry in found["categories"]:
        if not isinstance(entry, dict) or not _is_id(entry.get("id")):
            raise ValueError(f"{file} is not a COCO JSON: a category has no id in {short(entry)}")
    if not found["categories"]:
        raise ValueError(f"{file} is not a COCO JSON: it lists no category")
    if twice := [id for id, times in Counter(entry["id"] for entry in found["categories"]).items() if times > 1]:
        raise ValueError(f"{file} is not a COCO JSON: two categories have the id {twice[0]}")
    return found


def _missing(folder: Path, names: Iterable[str]) -> set[str]:
    """The names that no file has; they may lead through further folders.

    A folder is listed once, as COCO has 118,000 files in one. Only what is not listed is asked for by itself: the file
    system may ignore case or may not let us list.
    """
    listed = cache(_files)
    missing = set()
    for name in names:
        path = os.path.join(folder, name)  # a Path for each would take longer than all the rest
        parent, own = os.path.split(path)
        if own not in listed(parent) and not os.path.isfile(path):
            missing.add(name)
    return missing


def _files(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (OSError, ValueError):  # there is none, it may not be listed, or its name cannot be one
        return set()


def _checked(
    annotation: Annotation, sizes: dict[int, tuple[int, int]], categories: dict[int, str], masks: bool
) -> Annotation:
    """The annotation with its mask as compressed RLE, or what is wrong with it."""
    for key, known in (("image", sizes), ("category", categories)):
        id = annotation.get(f"{key}_id")
        if not _is_id(id) or id not in known:
            raise _Broken(f"its {key} {short(id)} is not listed")
    size = sizes[annotation["image_id"]]
    _check_box(annotation.get("bbox"), size)
    mask = _as_rle(annotation.get("segmentation"), size)
    if masks and mask is None:
        raise _Broken("it has no mask")
    area = annotation.get("area")
    if area is None:
        area = int(rle.area(mask)) if mask else annotation["bbox"][2] * annotation["bbox"][3]
    if not _is_number(area) or area < 0:
        raise _Broken(f"its area {short(area)} is not a number of at least 0")
    crowd = int(bool(annotation.get("iscrowd", 0)))
    kept = {key: annotation[key] for key in ("id", "image_id", "category_id", "bbox")}
    flags = {key: annotation[key] for key in FLAGS if _is_flag(annotation.get(key))}
    return {**kept, **flags, "segmentation": mask, "area": area, "iscrowd": crowd}


def _check_box(box: Any, size: tuple[int, int]) -> None:
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        raise _Broken(f"its box {short(box)} is not four numbers")
    left, top, width, height = box
    if width <= 0 or height <= 0:
        raise _Broken(f"its box {short(box)} has no area")
    if left >= size[1] or top >= size[0] or left + width <= 0 or top + height <= 0:
        raise _Broken(f"its box {short(box)} lies outside the image of {size[1]} x {size[0]}")
    for first, length, side in ((left, width, size[1]), (top, height, size[0])):
        start = np.float32(first)  # as targets have it: a box of a billionth of a pixel is none
        if max(start, 0) >= min(start + np.float32(length), side):
            raise _Broken(f"its box {short(box)} has no area within the image")


def _as_rle(mask: Any, size: tuple[int, int]) -> dict[str, Any] | None:
    """Polygons, or an RLE of either kind, as compressed RLE; None if there is no mask at all."""
    if mask is None or mask == []:
        return None
    found: Any
    try:
        match mask:
            case {"counts": list()}:
                found = rle.frPyObjects(mask, *size)
            case {"counts": str() | bytes()}:
                found = mask
            case _:
                reach = 10 * max(size)  # the reader takes memory for every step along an outline
                if not all(_is_number(number, reach) for outline in mask for number in outline):
                    raise _Broken(f"its mask has an outline beyond {reach} pixels, or of no numbers")
                outlines = [outline for outline in mask if len(outline) >= 6]  # a triangle at least
                found = rle.merge([*rle.frPyObjects(outlines, *size)]) if outlines else encode(np.zeros(size))
        if [*found["size"]] != [*size]:
            raise _Broken(f"its mask is {found['size'][1]} x {found['size'][0]}, not {size[1]} x {size[0]}")
        empty = not rle.decode(found).any() if isinstance(mask, dict) else not rle.area(found)
    except _Broken:
        raise
    except Exception as error:  # whatever the reader stumbles over
        reason = (str(error) or type(error).__name__).splitlines()[0][:80]
        raise _Broken(f"its mask cannot be read: {reason}") from None
    if empty:
        raise _Broken("its mask is empty")
    counts = found["counts"]
    return {"size": [*size], "counts": counts.decode() if isinstance(counts, bytes) else counts}


def _name(category: dict[str, Any]) -> str:
    return category["name"] if isinstance(category.get("name"), str) else str(category["id"])


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_side(value: Any) -> bool:
    return _is_id(value) and 0 < value <= LONGEST_SIDE


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or _is_number(value)


def _is_number(value: Any, most: float = MOST) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= most  # nan is not
