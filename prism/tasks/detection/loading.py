"""A detector and the file that says all it takes to build it again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prism.data.preprocessing import Preprocessing
from prism.model.metadata import Check, Metadata, checked, one_of, read_metadata, several, text, whole
from prism.model.weights import load_weights
from prism.tasks.detection.network import TITLES, Design, DetectionNetwork, build_network


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
    "width": whole(1, 65_536),
    "anchor": whole(1, 10_000),
    "sizes": several(whole(1, 100_000), 1, 100),
    "longest": whole(1, 100_000),
    "proposals": whole(1, 1_000_000),
    "regions": whole(1, 1_000_000),
    "norm": one_of(True, False),
    "categories": several(whole(0, 2**53), 0, 100_000),
    "amodal": one_of(True, False),
}


def load_detector(path: Path) -> Loaded:
    """The detector of a file of weights, ready to be used."""
    metadata = read_metadata(path)
    if metadata.task != "detection":
        raise ValueError(f"{path} does not hold a detector: train one with a recipe such as scenes-retinanet")
    classes, said = metadata.classes or [], dict(metadata.design)
    if reason := checked(said, DESIGN, "has no key"):
        raise ValueError(f"invalid metadata in {path}: design {reason}")
    categories, _ = said.pop("categories", [*range(1, len(classes) + 1)]), said.pop("amodal", True)
    design = Design(**{**said, "model": metadata.model, "sizes": tuple(said.get("sizes", Design().sizes))})
    network = build_network(design, len(classes), **metadata.network)
    load_weights(network, path)
    return Loaded(network.eval(), design, classes, categories)
