"""Images to begin with, and images that show what prototypes stand for."""

from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.cbook import get_sample_data
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS

from prism.analysis.prototypes import Prototype, atlas
from prism.app.intake import as_pixels, square, to_url
from prism.app.networks import Players
from prism.app.rendered import golf_ball, parachute
from prism.app.stories import STORIES, Story
from prism.data.images import read_image, unit_pixels
from prism.data.preprocessing import normalise
from prism.data.scenes import SHAPES, Scenes
from prism.occlusion.settings import CLEAN, Setting

CHOICE = 8  # samples to choose from
EXAMPLES = 160  # images in which prototypes are searched, a few seconds of a small network
PER_CODE = 3  # examples per prototype


class Sample(NamedTuple):
    image: str  # as a data URL
    note: str  # what there is to see
    truth: str = ""  # its class, where that is known
    setting: Setting = CLEAN  # what hides parts of it at first
    seed: int = 0


class Examples(NamedTuple):
    images: Tensor  # (n, 3, S, S) in [0, 1]
    prototypes: list[dict[int, Prototype]]  # by stage and code


def samples(players: Players, folder: Path | None, stories: bool = False) -> list[Sample]:
    """Images of the folder; without one, scenes for a network that knows their shapes, rendered images for others.

    The stories are told of the weights that the package carries, and of no others.
    """
    if folder is not None:
        return [_from_file(file, players) for file in _spread(image_files(folder), CHOICE)]
    if players.know_scenes:
        return [_from_scene(players, story) for story in (STORIES if stories else map(Story, range(CHOICE)))]
    ball, canopy = to_url(golf_ball()), to_url(parachute())
    found = [
        Sample(canopy, "80% of patches hidden", _known(players, "parachute"), Setting("PatchMask", 0.8), seed=11),
        Sample(ball, "all but a block hidden", _known(players, "golf ball"), Setting("OnlyOne", 112), seed=1),
        Sample(ball, "nothing hidden: paint over it", _known(players, "golf ball")),
    ]
    portrait = Path(get_sample_data("grace_hopper.jpg", asfileobj=False))  # a work of the US Navy: free for all
    if portrait.exists():  # some distributions leave it out
        found.append(Sample(to_url(square(read_image(portrait))), "a portrait: not one of its classes"))
    return found


def examples(players: Players, folder: Path | None) -> Examples | None:
    """Where the network recalls which prototype: in images of the folder, or in scenes if it knows them."""
    if players.network.memory != "vq" or not (folder or players.know_scenes):
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


def _from_file(file: Path, players: Players) -> Sample:
    """The name of the folder is the truth where it is a class."""
    truth = dict(zip(players.classes, players.titles, strict=True)).get(file.parent.name, "")
    return Sample(to_url(square(read_image(file))), truth or file.name, truth)


def _known(players: Players, title: str) -> str:
    return title if title in players.titles else ""


def _from_scene(players: Players, story: Story) -> Sample:
    image, label = Scenes("val", story.scene + 1, players.size)[story.scene]
    truth = SHAPES[label] if players.know_scenes else ""
    return Sample(to_url(image), story.note or SHAPES[label], truth, story.setting, story.seed)
