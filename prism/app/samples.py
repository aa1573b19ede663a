"""Images to begin with, and images that show what prototypes stand for."""

from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.cbook import get_sample_data
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS

from prism.analysis.pairs import normalise
from prism.analysis.prototypes import Prototype, atlas
from prism.app.intake import as_pixels, square, to_url
from prism.app.networks import Players
from prism.data.images import read_image, unit_pixels
from prism.data.scenes import SHAPES, Scenes

CHOICE = 8  # samples to choose from
EXAMPLES = 160  # images in which prototypes are searched, a few seconds of a small network
PER_CODE = 3  # examples per prototype


class Sample(NamedTuple):
    image: str  # as a data URL
    truth: str = ""  # its class, where that is known
    note: str = ""  # where it is from


class Examples(NamedTuple):
    images: Tensor  # (n, 3, S, S) in [0, 1]
    prototypes: list[dict[int, Prototype]]  # by stage and code


def samples(players: Players, folder: Path | None) -> list[Sample]:
    """Images of the folder; without one, scenes for a network that was trained on their shapes.

    Another network begins with a photograph that matplotlib ships, and scenes.
    """
    if folder is None and players.classes == list(SHAPES):
        return _scenes(players, CHOICE)
    files = _spread(image_files(folder), CHOICE) if folder is not None else []
    found = [_sample(file, players) for file in files]
    portrait = Path(get_sample_data("grace_hopper.jpg", asfileobj=False))  # a work of the US Navy: free for all
    if portrait.exists():  # some distributions leave it out
        found.append(Sample(to_url(square(read_image(portrait))), note="Grace Hopper, public domain"))
    return found + _scenes(players, max(0, CHOICE - len(found)))


def examples(players: Players, folder: Path | None) -> Examples | None:
    """Where the network recalls which prototype: in images of the folder, or in scenes. None if it has none."""
    if players.network.memory != "vq":
        return None
    if folder is not None:
        chosen = _spread(image_files(folder), EXAMPLES)
        images = [as_pixels(square(read_image(file)), players.size) for file in chosen]
    else:
        data = Scenes("train", EXAMPLES, players.size, transform=unit_pixels)
        images = [data[index][0] for index in range(EXAMPLES)]
    stacked = torch.stack(images)
    seen = normalise(stacked, players.ours.mean, players.ours.std)
    return Examples(stacked, atlas(players.network, seen, PER_CODE))


def image_files(folder: Path) -> list[Path]:
    """At any depth."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMG_EXTENSIONS and file.is_file())
    if not found:
        raise ValueError(f"there is no image in {folder}")
    return found


def _spread(files: list[Path], count: int) -> list[Path]:
    """At most so many, evenly: a folder of classes gives some of each."""
    count = min(count, len(files))
    return [files[number * len(files) // count] for number in range(count)]


def _sample(file: Path, players: Players) -> Sample:
    """The name of the folder is the truth where it is a class."""
    titles = dict(zip(players.classes, players.titles, strict=True))
    return Sample(to_url(square(read_image(file))), titles.get(file.parent.name, ""))


def _scenes(players: Players, count: int) -> list[Sample]:
    data = Scenes("val", max(1, count), players.size)
    known = players.classes == list(SHAPES)
    return [
        Sample(to_url(image), SHAPES[label] if known else "", "rendered scene")
        for image, label in (data[index] for index in range(count))
    ]
