"""Images with a class for every pixel, whatever holds them; and how training shows them.

Labels are (H, W) of uint8, classes counted from 0. VOID marks pixels of which nobody says what they show: they are
never learnt from and never counted.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS

from prism.data.images import fingerprint_files, open_image, read_image, unit_pixels
from prism.data.scenes import SHAPES, Scenes
from prism.data.sources import SCENES, Labelled, OwnImages
from prism.model.checks import read_text

VOID = 255
ADE20K_CLASSES = 150
ADE20K_SPLITS = {"train": "training", "val": "validation"}
# fmt: off
VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa", "train", "tv monitor",
)
# fmt: on

Sides = tuple[int, int]


def open_segmentation(
    data: str, split: str, size: int = 64, length: int | None = None, classes: int | None = None
) -> Labelled:
    """`data` is "scenes", or a folder in the layout of ADE20K, of VOC, or of images/SPLIT beside masks/SPLIT.

    `size` and `length` are of scenes; `classes` is for a folder of masks that has no classes.txt.
    """
    if data == "scenes":
        return SegmentedScenes(split, SCENES.get(split, 1) if length is None else length, size)
    root = Path(data)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {data}")
    if (root / "SegmentationClass").is_dir():  # first: where case is ignored, VOC's Annotations/ are annotations/ too
        return _open_voc(root, split)
    if (root / "annotations").is_dir():
        pairs = _pairs_of_folders(root / "images", root / "annotations", ADE20K_SPLITS.get(split, split))
        return SegmentedFiles(pairs, _ade20k_names(root / "objectInfo150.txt"), first=1)
    if (root / "masks").is_dir():
        pairs = _pairs_of_folders(root / "images", root / "masks", split)
        return SegmentedFiles(pairs, _class_names(root, classes))
    raise ValueError(
        f"{data} holds no labels: expected images/ and annotations/ (ADE20K), JPEGImages/ and SegmentationClass/ "
        "(VOC), or images/ and masks/"
    )


class SegmentedScenes(Scenes):
    """Generated scenes: the ground, and ten shapes."""

    def __init__(self, split: str, length: int, size: int):
        super().__init__(split, length, size)
        self.classes = ["ground", *SHAPES]

    def __getitem__(self, index: int) -> tuple[Image.Image, Any]:
        scene = self.scene(index)
        return Image.fromarray(scene.image), scene.semantic


class SegmentedFiles:
    """Pairs of an image and its mask. `first` is the number that masks give to class 0; the one below it is void."""

    def __init__(self, pairs: Sequence[tuple[Path, Path]], classes: Sequence[str], first: int = 0):
        if not 0 < len(classes) <= VOID:
            raise ValueError(f"masks of one byte per pixel hold at most {VOID} classes, got {len(classes)}")
        self.pairs, self.classes, self.first = pairs, list(classes), first

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Image.Image, np.ndarray]:
        path, mask = self.pairs[index]
        image, labels = read_image(path), self._labels(mask)
        height, width = labels.shape
        if image.size != (width, height):
            own = "{} x {}".format(*image.size)
            raise ValueError(f"{path} has {own} pixels, its mask {mask} has {width} x {height}")
        return image, labels

    def name(self, index: int) -> str:
        return str(self.pairs[index][0])

    def fingerprint(self) -> str:
        every = ((path, "") for pair in self.pairs for path in pair)
        return f"{fingerprint_files(every)} {self.classes} from {self.first}"

    def _labels(self, mask: Path) -> np.ndarray:
        numbers = read_mask(mask)
        void = (numbers == VOID) | (numbers == self.first - 1)
        last = self.first + len(self.classes) - 1
        if wrong := numbers[~void & ((numbers < self.first) | (numbers > last))].tolist():
            raise ValueError(f"{mask} has a pixel of class {wrong[0]}; there are classes {self.first} to {last}")
        return np.where(void, VOID, numbers - self.first).astype(np.uint8)


class LabelledImages(OwnImages):
    """Images as evaluations ask for them: image (3, H, W) in [0, 1], labels (H, W)."""

    def __init__(self, samples: Labelled):
        super().__init__(samples, unit_pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, labels = super().__getitem__(index)
        return image, torch.from_numpy(labels)


def read_mask(path: Path) -> np.ndarray:
    """The number of every pixel, (H, W); a palette's colours are only for show."""
    with open_image(path, str(path), "a mask") as image:
        numbers = np.asarray(image)
    if numbers.ndim != 2 or numbers.dtype.kind not in "bui":
        raise ValueError(f"{path} is not a mask: a mask has one whole number per pixel, this has mode {image.mode}")
    return numbers.astype(np.int32)


def fitted(size: Sides, fit: Sides | None) -> Sides:
    """Height and width of an image that just fits into sides (long, short); without them its own."""
    if fit is None:
        return size
    factor = min(max(fit) / max(size), min(fit) / min(size))
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _ade20k_names(table: Path) -> list[str]:
    """From the table that comes with the images: a heading, then one class per line, its names in the last column."""
    if not table.is_file():
        return [f"class {number}" for number in range(1, 1 + ADE20K_CLASSES)]
    names = [line.split("\t")[-1].split(",")[0].strip() for line in read_text(table).splitlines()[1:] if line.strip()]
    if len(names) != ADE20K_CLASSES:
        raise ValueError(f"{table} names {len(names)} classes, ADE20K has {ADE20K_CLASSES}")
    return names


def _open_voc(root: Path, split: str) -> SegmentedFiles:
    places = (root / f"{split}.txt", root / "ImageSets" / "Segmentation" / f"{split}.txt")
    listed = next((path for path in places if path.is_file()), None)
    if listed is None:
        raise FileNotFoundError(f"{root} has no split {split!r}: there is neither {places[0]} nor {places[1]}")
    stems = read_text(listed).split()
    pairs = [(root / "JPEGImages" / f"{s}.jpg", root / "SegmentationClass" / f"{s}.png") for s in stems]
    if missing := next((path for pair in pairs for path in pair if not path.is_file()), None):
        raise FileNotFoundError(f"{listed} names {missing.stem}, but there is no {missing}")
    return SegmentedFiles(_some(pairs, listed), VOC_CLASSES)


def _class_names(root: Path, count: int | None) -> list[str]:
    listed = root / "classes.txt"
    if listed.is_file():
        return [line.strip() for line in read_text(listed).splitlines() if line.strip()]
    if count is None:
        raise ValueError(f"there is no {listed} with one class per line: write it, or say how many classes there are")
    return [f"class {number}" for number in range(count)]


def _pairs_of_folders(images: Path, masks: Path, split: str) -> list[tuple[Path, Path]]:
    """Files of the same stem."""
    found, labelled = _by_stem(images / split), _by_stem(masks / split)
    for here, there, what in ((found, labelled, masks), (labelled, found, images)):
        if alone := sorted(here.keys() - there.keys()):
            others = f", nor have {len(alone) - 1} others" if len(alone) > 1 else ""
            raise ValueError(f"{here[alone[0]]} has no counterpart in {what / split}{others}")
    return _some([(found[stem], labelled[stem]) for stem in sorted(found)], images / split)


def _by_stem(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        there = sorted(path.name for path in folder.parent.iterdir() if path.is_dir()) if folder.parent.is_dir() else []
        raise FileNotFoundError(f"there is no folder {folder}; {folder.parent} has {', '.join(there) or 'no folders'}")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in IMG_EXTENSIONS:
            if path.stem in found:
                raise ValueError(f"{found[path.stem]} and {path} cannot be told apart by their stem")
            found[path.stem] = path
    return found


def _some(pairs: list[tuple[Path, Path]], where: Path) -> list[tuple[Path, Path]]:
    if not pairs:
        raise ValueError(f"there are no labelled images in {where}")
    return pairs
