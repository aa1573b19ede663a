"""A detector and the file that says all it takes to build it again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prism.data.preprocessing import Preprocessing
from prism.model.checks import LARGEST, Check, checked, one_of, several, text, whole
from prism.model.creation import with_weights
from prism.model.metadata import Metadata, read_metadata
from prism.tasks.detection.network import TITLES, Design, DetectionNetwork, build_network
from prism.tasks.detection.recipes import NORM_GROUPS


def describe(
    network: DetectionNetwork,
    design: Design,
    classes: Sequence[str],
    categories: Sequence[int],
    arguments: Mapping[str, Any],
    amodal: bool = True,
) -> Metadata:
    """What a file of weights must say so that `load_detector` can build the detector again.

    Of scenes also whether it learned whole objects (amodal), which is how it is evaluated.
    """
    seen: Any = network.detector.transform
    preprocessing = Preprocessing(design.sizes[-1], None, "bilinear", tuple(seen.image_mean), tuple(seen.image_std))
    return Metadata(
        task="detection",
        model=design.model,
        network=arguments,
        classes=[*classes],
        preprocessing=preprocessing.to_metadata(),
        design=design._asdict() | {"categories": [*categories], "amodal": amodal},
    )


class Loaded(NamedTuple):
    """A detector from a file, and what the file says of it."""

    network: DetectionNetwork
    design: Design
    classes: list[str]
    categories: list[int]


DESIGN: dict[str, Check] = {
    "model": text,
    "head": one_of(*TITLES),
    "width": whole(1, LARGEST),
    "anchor": whole(1, LARGEST),
    "sizes": several(whole(1, LARGEST), 1, 100),
    "longest": whole(1, LARGEST),
    "proposals": whole(1, 100_000),
    "regions": whole(1, 100_000),
    "norm": one_of(True, False),
    "categories": several(whole(0, 2**53), 0, 100_000),
    "amodal": one_of(True, False),
}


def check_design(metadata: Metadata, path: Path | None) -> dict[str, Any]:
    """What a file says of its detector, or a sentence what is wrong with it."""
    said, classes = dict(metadata.design), metadata.classes or []
    reason = checked(said, DESIGN, "has no key") or ("" if classes else "has no classes")
    if not reason and len(said.get("categories", classes)) != len(classes):
        reason = f"has {len(said['categories'])} categories for {len(classes)} classes"
    if not reason and said.get("norm") and said.get("width", NORM_GROUPS) % NORM_GROUPS:
        reason = f"width must be a multiple of {NORM_GROUPS} with norm, got {said['width']}"
    if reason:
        raise ValueError(f"invalid metadata in {path}: design {reason}")
    return said


def load_detector(path: Path) -> Loaded:
    """The detector of a file of weights, ready to be used."""
    metadata = read_metadata(path)
    if metadata.task != "detection":
        raise ValueError(f"{path} does not hold a detector: train one with a recipe such as scenes-retinanet")
    classes, said = metadata.classes or [], check_design(metadata, path)
    categories, _ = said.pop("categories", [*range(1, len(classes) + 1)]), said.pop("amodal", True)
    design = Design(**{**said, "model": metadata.model, "sizes": tuple(said.get("sizes", Design().sizes))})
    network = with_weights(lambda: build_network(design, len(classes), **metadata.network), path)
    return Loaded(network.eval(), design, classes, categories)
