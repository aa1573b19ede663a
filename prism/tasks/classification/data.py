"""Labelled images as classifiers see them, in training and in evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from timm.data import resolve_data_config
from timm.data.transforms_factory import create_transform
from torch import Tensor, nn

from prism.data import sources
from prism.data.preprocessing import Preprocessing
from prism.data.shards import ShardedImages, ShardStream, find_shards
from prism.data.sources import OwnImages
from prism.data.stream import Ranks, ShuffledStream, Stream, Transform
from prism.model.creation import Checkpoint
from prism.model.metadata import Metadata
from prism.occlusion.masks import scattered_mask
from prism.tasks.classification.recipes import Classification

SCENES = 1000  # generated images that are evaluated, unless told


def training_transform(recipe: Classification, network: nn.Module) -> Transform:
    """timm's augmentation of a PIL image, as the recipe asks for it.

    Of a share `scattered` of the images, random cells take the mean colour, which is 0 after normalisation.
    """
    config, size = resolve_data_config(model=network), recipe.size
    erasing, scattered = (recipe.erasing, recipe.scattered) if recipe.hiding else (0.0, 0.0)
    try:
        augment: Any = create_transform(
            (3, size, size),
            is_training=True,
            scale=(recipe.smallest_crop, 1.0),
            hflip=0.5 if recipe.flip else 0.0,
            color_jitter=recipe.jitter,
            auto_augment=recipe.randaugment,
            interpolation="bicubic",
            mean=config["mean"],
            std=config["std"],
            re_prob=erasing,
            re_mode="pixel",
        )
        augment(Image.new("RGB", (size, size)))
    except Exception as error:  # timm's reader of policies asserts, divides and looks up what it is given
        if not recipe.randaugment:
            raise
        raise ValueError(
            f"timm does not know the policy {recipe.randaugment!r}: {type(error).__name__} {error}"
        ) from None

    def transform(image: Any, label: int) -> tuple[Tensor, int]:
        shown: Tensor = augment(image)
        if scattered and torch.rand(()) < scattered:
            shown = shown.masked_fill(scattered_mask((size, size)), 0)
        return shown, label

    return transform


def open_images(
    checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], size: int | None, limit: int | None
) -> Mapping[str, OwnImages]:
    """Images in [0, 1] by split, prepared as the first file of weights says.

    Their classes are those that a file of weights names, or the train split, or the first.
    """
    described = next((c.metadata for c in checkpoints if c.size), Metadata())
    preprocessing = Preprocessing.from_metadata(described).at(size)
    scenes = data == "scenes"
    classes = None if scenes else next((c.classes for c in checkpoints if c.classes), None)
    length = (SCENES if limit is None else limit) if scenes else None
    found: dict[str, OwnImages] = {}
    for split in [split or "clean" for split in splits] if scenes else splits:
        images = sources.open_images(data, split, preprocessing.size, length, classes=classes)
        classes = images.classes
        found[split] = OwnImages(sources.limited(images, None if scenes else limit), preprocessing.unit)
    return found


def class_names(recipe: Classification) -> list[str]:
    """Names of the classes; shards do not tell, so theirs are numbers."""
    if find_shards(recipe.data, "train"):
        if recipe.classes is None:
            raise ValueError(f"shards do not say how many classes they have: give --classes for {recipe.data}")
        return [str(number) for number in range(recipe.classes)]
    names = sources.open_images(recipe.data, "train", recipe.size).classes
    if recipe.classes not in (None, len(names)):
        raise ValueError(f"{recipe.data} has {len(names)} classes, not {recipe.classes}")
    return names


def evaluation_images(
    recipe: Classification, split: str, preprocessing: Preprocessing, ranks: Ranks
) -> OwnImages | ShardedImages:
    """This process's part of a split, normalised."""
    if shards := find_shards(recipe.data, split):
        return ShardedImages(shards, preprocessing, ranks, recipe.classes)
    images = sources.open_images(recipe.data, split, recipe.size)
    return OwnImages(sources.limited(images, recipe.limit), preprocessing, ranks)


def training_stream(recipe: Classification, network: nn.Module, ranks: Ranks) -> Stream:
    transform = training_transform(recipe, network)
    batch = recipe.batch // recipe.accumulate
    if shards := find_shards(recipe.data, "train"):
        if recipe.hold_out:
            raise ValueError(f"{recipe.data} are shards: to hold a part out, name one of them otherwise")
        return ShardStream(
            shards, transform, batch, recipe.length, recipe.seed, ranks, recipe.workers, classes=recipe.classes
        )
    split = "rest" if recipe.hold_out else "train"
    images = sources.open_images(recipe.data, split, recipe.size, recipe.length)
    return ShuffledStream(images, transform, batch, recipe.seed, ranks, recipe.workers)
