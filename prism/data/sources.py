"""Labelled images, whatever holds them: generated scenes, folders of classes, a saved Hugging Face data set.

A split is a subfolder; data that is not divided has one split, named "". Any data with a split "train" can be divided
further: "held-out" is every fifth image of it, "rest" the others, so that choices need not look at val.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Protocol

from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.datasets.folder import IMG_EXTENSIONS

from prism.data.images import Unreadable, decode_image, fingerprint_files, read_image
from prism.data.scenes import SPLITS, Scenes
from prism.data.stream import ALONE, Ranks, Samples
from prism.model.checks import read_json, several, table, text
from prism.model.metadata import MOST_CLASSES

EACH_HELD_OUT = 5
SCENES = {"train": 10_000, "val": 1_000, "clean": 1_000}  # how many of each split, unless told


class Labelled(Samples, Protocol):
    """The target of an image is its class, or the class of every pixel."""

    classes: list[str]


class Chosen(Dataset[tuple[Any, Any]]):
    """Some images of a set, as a set of their own."""

    def __init__(self, images: Labelled, chosen: Sequence[int]):
        self.images, self.classes, self.chosen = images, images.classes, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[self.chosen[index]]

    def name(self, index: int) -> str:
        return name_of(self.images, self.chosen[index])

    def fingerprint(self) -> str:
        whole = [*self.chosen] == [*range(len(self.images))]
        return fingerprint(self.images) + ("" if whole else f" {self.chosen}")


class Part(Chosen):
    """Some images of a set, which stay what they are in it."""

    def original_index(self, place: int) -> int:
        return original_index(self.images, self.chosen[place])


class OwnImages(Part):
    """This process's images of a split, as they are evaluated: every world-th one."""

    def __init__(self, images: Labelled, transform: Callable[[Any], Tensor], ranks: Ranks = ALONE):
        super().__init__(images, range(ranks.rank, len(images), ranks.world))
        self.transform = transform

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = super().__getitem__(index)
        return self.transform(image), target

    def fingerprint(self) -> str:
        """Of every file and target, and of how they are shown."""
        shown = getattr(self.transform, "__self__", getattr(self.transform, "__name__", self.transform))
        return f"{fingerprint(self.images)} {self.chosen} {shown}"


def open_images(
    data: str,
    split: str,
    size: int = 64,
    length: int | None = None,
    seed: int = 0,
    classes: list[str] | None = None,
) -> Labelled:
    """`data` is "scenes" or a folder; `size`, `length` and `seed` are of scenes, `classes` of folders of images.

    The classes, which number the labels, are those of the train split, where there is one and none are given: a class
    that another split lacks keeps its number.
    """
    if split in ("held-out", "rest") and split not in splits(data):
        whole = open_images(data, "train", size, length, seed, classes)
        held = split == "held-out"
        return Chosen(whole, [n for n in range(len(whole)) if (n % EACH_HELD_OUT == 0) == held])
    if data == "scenes":
        return Scenes(split, SCENES.get(split, 1) if length is None else length, size, seed)
    there, folder = splits(data), Path(data) / split
    if not split and there not in ([], [""]):
        raise ValueError(f"{data} holds splits, not classes: add --split {there[-1]}")
    if not folder.is_dir():
        raise FileNotFoundError(f"{data} has no split {split!r}; it has {', '.join(there) or 'no splits'}")
    train = Path(data) / "train"
    if (folder / "state.json").is_file():
        images = _Saved(folder, train if (train / "state.json").is_file() else folder)
    else:
        images = _ClassFolders(folder, classes or _folders(train if train.is_dir() and _folders(train) else folder))
    if not len(images):
        raise ValueError(f"there are no labelled images in {folder}")
    return images


def splits(data: str) -> list[str]:
    """The splits that are there; [""] if the folder holds the classes themselves."""
    if data == "scenes":
        return list(SPLITS)
    folder = Path(data)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {data}")
    if (folder / "dataset_dict.json").is_file():
        found = read_json(folder / "dataset_dict.json")
        if reason := table(found) or several(text, 1, 1000)(found.get("splits")):
            raise ValueError(f"{folder / 'dataset_dict.json'} does not describe a saved data set: splits {reason}")
        return found["splits"]
    if (folder / "state.json").is_file():
        return [""]
    inner = _folders(folder)
    return [name for name in inner if _holds_folders(folder / name)] or ([""] if inner else [])


def limited(images: Labelled, count: int | None) -> Labelled:
    """At most `count` of them, spread over the set: a quick look that still sees every class. Without one, all.

    One is drawn from each stretch. At even steps all would be of one kind where kinds take turns, as in scenes.
    """
    if count is None:
        return images
    if count < 1:
        raise ValueError(f"limit must be at least 1, got {count}")
    count = min(count, len(images))
    edges = [number * len(images) // count for number in range(count + 1)]
    draw = Random(0)
    return Part(images, [draw.randrange(first, end) for first, end in pairwise(edges)])


def original_index(images: Any, place: int) -> int:
    """The index in the whole set of what lies at this place of a part of it, if the data set says it; else the place.

    Masks go by it, so that a limit does not change what is hidden.
    """
    found = getattr(images, "original_index", None)
    return found(place) if found else place


def name_of(images: Any, place: int) -> str:
    """What messages call the image at this place."""
    return images.name(place) if hasattr(images, "name") else f"image {place}"


def fingerprint(images: Any) -> str:
    """Changes when a file or a label of a data set does."""
    return images.fingerprint() if hasattr(images, "fingerprint") else f"{type(images).__name__} of {len(images)}"


def optional(module: str) -> Any:
    """A module that only some kinds of data need."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise ValueError(f"{module} is not installed; in a clone of PRISM: pip install '.[train]'") from None


class _ClassFolders:
    """ImageNet's layout: one folder per class, with images at any depth."""

    def __init__(self, folder: Path, classes: list[str]):
        self.classes = classes
        if strange := next((name for name in _folders(folder) if name not in classes), None):
            raise ValueError(f"{folder} has a class {strange!r} that is not among {', '.join(classes)[:100]}")
        numbers = {name: number for number, name in enumerate(classes)}
        self.files = [(path, numbers[name]) for name in sorted(classes) for path in _images_below(folder / name)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.files[index]
        try:
            return read_image(path), label
        except FileNotFoundError as error:  # listed, but gone: a broken link
            raise Unreadable(str(error)) from None

    def name(self, index: int) -> str:
        return self.files[index][0]

    def fingerprint(self) -> str:
        return fingerprint_files(self.files)


class _Saved:
    """A split saved by `datasets`; which column is which is known by their types."""

    def __init__(self, folder: Path, train: Path):
        self.folder, datasets = folder, optional("datasets")
        rows = _load_saved(folder)
        kinds = rows.features.items()
        images = [name for name, kind in kinds if isinstance(kind, datasets.Image)]
        labels = [name for name, kind in kinds if isinstance(kind, datasets.ClassLabel)]
        labels = labels or [name for name, kind in kinds if isinstance(kind, datasets.Value) and "int" in kind.dtype]
        if len(images) != 1 or len(labels) != 1:
            columns = ", ".join(f"{name} ({type(kind).__name__})" for name, kind in kinds)
            raise ValueError(f"{folder} must have one column of images and one of labels; it has {columns}")
        (self.image,), (self.label,) = images, labels
        undecoded = rows.cast_column(self.image, datasets.Image(decode=False))  # as files are: see decode_image
        self.rows = undecoded.select_columns([self.image, self.label])
        own = _saved_classes(rows, self.label)
        self.classes = _saved_classes(rows if train == folder else _load_saved(train), self.label)
        if self.classes[: len(own)] != own:
            raise ValueError(f"{folder} does not number its classes as {train} does")
        if wrong := {*rows.unique(self.label)} - {*range(len(self.classes))}:
            raise ValueError(f"{folder} has labels without a class: {', '.join(map(str, wrong))}")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        row = self.rows[index]
        stored = row[self.image]
        if not stored or stored["bytes"] is None:  # save_to_disk stores the bytes of every file it can read
            raise Unreadable(f"{self.name(index)} has no image")
        return decode_image(stored["bytes"], self.name(index)), row[self.label]

    def name(self, index: int) -> str:
        return f"row {index} of {self.folder}"

    def fingerprint(self) -> str:
        return f"{self.folder} {self.rows._fingerprint} {self.classes}"


def _load_saved(folder: Path) -> Any:
    try:
        return optional("datasets").load_from_disk(str(folder)).with_format(None)
    except Exception as error:  # a damaged file can fail anywhere in the readers of JSON and Arrow
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{folder} cannot be read as a saved data set: {reason}") from None


def _saved_classes(rows: Any, label: str) -> list[str]:
    """Plain numbers are their own names."""
    if hasattr(rows.features[label], "names"):
        return rows.features[label].names
    count = 1 + max((n for n in rows.unique(label) if n is not None), default=-1)
    if count > MOST_CLASSES:
        raise ValueError(f"the column {label!r} does not hold labels: its values go up to {count - 1}")
    return [str(number) for number in range(count)]


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _images_below(folder: Path) -> list[str]:
    """At any depth, through links too, but each folder once, and none above: such links would never end."""
    found, seen, top = [], set(), os.path.realpath(folder)
    for root, inner, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(root)) in seen or top.startswith(os.path.join(real, "")):
            inner.clear()
            continue
        seen.add(real)
        inner.sort()
        found += [(root, name) for name in names if name.lower().endswith(IMG_EXTENSIONS)]
    return [os.path.join(*place) for place in sorted(found)]


def _holds_folders(folder: Path) -> bool:
    """True at the first folder, False at the first image: a class of a million images is not listed for this."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir() or entry.name.lower().endswith(IMG_EXTENSIONS):
                return entry.is_dir()
    return False
