"""Images with objects to detect, wherever they come from: generated scenes, or a folder with COCO JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from prism.data.annotations import Annotation, encode, target_of
from prism.data.coco import CocoImages
from prism.data.images import THINNEST
from prism.data.scenes import SHAPES, SceneObject, Scenes

OCCLUDED = 0.3  # a scene's object of which more is hidden is flagged as occluded
UNNAMEABLE = 0.75  # one of which more is hidden is a region to ignore: nobody could name it
SCENES = {"train": 10_000, "val": 500, "clean": 500}  # how many of each split, unless told
LAYOUTS = ("annotations/instances_{}2017.json", "instances_{}.json", "instances.json")  # COCO's, and small sets'
FOLDERS = ("{}2017", "JPEGImages", "images", "{}")


class SceneImages(Scenes):
    """Generated scenes with all their objects: whole ones (amodal), or what is seen of them.

    An object of which over 30 % is hidden is flagged as occluded; one of which over 75 % is, is a region to ignore.
    """

    def __init__(self, split: str = "train", length: int = 10_000, size: int = 96, seed: int = 0, amodal: bool = True):
        super().__init__(split, length, size, seed)
        self.amodal, self.categories = amodal, list(range(1, len(SHAPES) + 1))

    def __getitem__(self, index: int) -> tuple[Image.Image, Any]:
        scene = self.scene(index)
        annotations = self._annotations(index, scene.objects)
        labels = {id: id for id in self.categories}
        return Image.fromarray(scene.image), target_of(annotations, index, (self.size, self.size), labels, masks=True)

    def image(self, index: int) -> dict[str, Any]:
        file = f"{self.split}-{index:08d}.png"
        return {"id": index, "file_name": file, "width": self.size, "height": self.size}

    def annotations(self, index: int) -> list[Annotation]:
        return self._annotations(index, self.scene(index).objects)

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}, amodal {self.amodal}"

    def _annotations(self, index: int, objects: Sequence[SceneObject]) -> list[Annotation]:
        first = 100 * index + 1  # a scene has fewer objects than that
        return [_annotation(item, first + place, index, self.amodal) for place, item in enumerate(objects)]


def open_annotated(
    data: str,
    split: str,
    size: int = 96,
    limit: int | None = None,
    length: int | None = None,
    amodal: bool = True,
    masks: bool = True,
    thinnest: int = THINNEST,
) -> CocoImages | SceneImages:
    """`data` is "scenes" (of this `size` and `length`, whole objects or seen parts), or a folder with COCO JSON.

    The folder is in COCO's layout, or it has instances_SPLIT.json or instances.json beside JPEGImages/ or images/.
    """
    for name, count in (("limit", limit), ("length", length)):
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")
    if data == "scenes":
        return SceneImages(split, limit or length or SCENES.get(split, 1), size, amodal=amodal)
    root = Path(data)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {data}")
    files = [root / layout.format(split) for layout in LAYOUTS]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise FileNotFoundError(f"{data} has no split {split!r}: there is none of {', '.join(map(str, files))}")
    folder = next((folder for name in FOLDERS if (folder := root / name.format(split)).is_dir()), root)
    return CocoImages(file, folder, masks, limit, thinnest)


def _annotation(item: SceneObject, id: int, image_id: int, amodal: bool) -> Annotation:
    mask, box = (item.amodal, item.box) if amodal else (item.visible, item.visible_box)
    return {
        "id": id,
        "image_id": image_id,
        "category_id": item.label + 1,
        "bbox": [box.left, box.top, box.right - box.left, box.bottom - box.top],
        "area": int(np.count_nonzero(mask)),
        "segmentation": encode(mask),
        "iscrowd": int(item.hidden > UNNAMEABLE),
        "occluded": int(item.hidden > OCCLUDED),
    }
