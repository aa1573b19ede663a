"""Recipes for detection: the paper's on COCO, and smaller ones for real and for generated pictures."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
from accelerate import Accelerator
from rich.console import Console
from torch import nn
from tyro.conf import arg

from prism.data.coco import CocoPictures
from prism.data.objects import open_annotated, training_view
from prism.data.stream import Batch, Ranks, ShuffledStream, listed
from prism.metrics.average_precision import ground_truth, judge
from prism.model.metadata import model_arguments
from prism.occlusion.detection import PUBLISHED
from prism.recipes.classification import LEAN
from prism.tasks.detection import (
    NORM_GROUPS,
    Design,
    DetectionNetwork,
    Detector,
    Head,
    build_network,
    costs,
    describe,
    detect,
)
from prism.tasks.learner import Weights
from prism.training.loop import Job
from prism.training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Detection(Settings):
    """Fields of a detection recipe, beside those of every recipe."""

    head: Head = "retinanet"
    """boxes by RetinaNet, or boxes and masks by Mask R-CNN"""
    model: str = "prism_nano"
    """the backbone: a PRISM variant or any timm model"""
    network: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE...")] = ()
    """arguments of the backbone, such as max_steps=6 memory=off preset=paper"""
    weights: Path | None = None
    """weights of a classifier for the backbone to start from"""
    frozen: int = 0
    """stages of the backbone, from the first, that stay as they are"""
    data: str = "scenes"
    """scenes, or a folder with pictures and COCO JSON: in COCO's layout, or with instances_{train,val}.json"""
    split: str = "val"
    """the split that is judged"""
    limit: int | None = None
    """pictures that are judged, spread over the split; all by default, of scenes 500"""
    amodal: bool = True
    """of scenes: whole objects, or only what is seen of them"""
    length: int | None = None
    """generated scenes an epoch"""
    classes: int | None = None
    """number of classes; by default what the data has"""
    sizes: Annotated[tuple[int, ...], arg(metavar="SIDE...")] = (800,)
    """short sides of the pictures: in training one is drawn for each, judged is at the last"""
    longest: int = 1333
    """but no side is longer"""
    width: int = 256
    """channels of the feature pyramid and the heads"""
    anchor: int = 32
    """side of the smallest anchor in pixels"""
    proposals: int = 1000
    """regions of a picture that Mask R-CNN looks at"""
    regions: int = 512
    """regions of a picture that train Mask R-CNN"""
    norm: bool = False
    """group norms in the feature pyramid and the heads: a short training gets further with them"""
    flip: bool = True
    own_losses: bool = True
    """whether PRISM's ponder and memory losses join those of detection"""
    ponder: float = 0.005
    """lambda of the ponder loss"""
    vq: float = 0.01
    """lambda of the memory's loss"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("longest", "width", "anchor", "proposals", "regions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.norm and self.width % NORM_GROUPS:
            raise ValueError(f"with norm the width must be a multiple of {NORM_GROUPS}, got {self.width}")
        for name in ("ponder", "vq"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must be at least one side of at least 1 pixel, got {self.sizes}")
        if not 0 <= self.frozen <= 4:
            raise ValueError(f"frozen must be from 0 to 4 stages, got {self.frozen}")


def coco_retinanet() -> Detection:
    """The paper's RetinaNet on COCO: 12 epochs at 800 px.

    `prism train coco-retinanet --data coco --weights runs/imagenet/best.safetensors`, by `accelerate launch` on several
    GPUs. Not run here: by the paper prism_tiny reaches 43.6 box AP on 4 RTX A6000.
    """
    return Detection(out=Path("runs/coco-retinanet"), head="retinanet", lr=1e-4, **_coco())


def coco_maskrcnn() -> Detection:
    """The paper's Mask R-CNN on COCO: 12 epochs at 800 px.

    `prism train coco-maskrcnn --data coco --weights runs/imagenet/best.safetensors`, by `accelerate launch` on several
    GPUs. Not run here: by the paper prism_tiny reaches 44.5 box AP and 40.8 mask AP on 4 RTX A6000.
    """
    return Detection(out=Path("runs/coco-maskrcnn"), head="maskrcnn", lr=2e-4, **_coco())


def voc_retinanet() -> Detection:
    """RetinaNet on PASCAL VOC at a long side of 256, for two cores.

    `prism train voc-retinanet --data voc2012-seg256 --weights prism/weights/prism_nano.safetensors`, the weights of
    Imagenette that the package carries.
    """
    return Detection(out=Path("runs/voc-retinanet"), head="retinanet", **_voc())


def voc_maskrcnn() -> Detection:
    """Mask R-CNN on PASCAL VOC at a long side of 256, for two cores.

    `prism train voc-maskrcnn --data voc2012-seg256 --weights prism/weights/prism_nano.safetensors`, the weights of
    Imagenette that the package carries: 1,098 steps of 1.4 s on one core of an EPYC. Measured
    with seed 0: box AP 3.8, mask AP 2.1; 2.0 and 1.3 under M30; PVTv2-B0 2.4, 1.5, 1.5, 1.0 (results/voc-detection).
    """
    return Detection(out=Path("runs/voc-maskrcnn"), head="maskrcnn", proposals=200, regions=64, **_voc())


def scenes_retinanet() -> Detection:
    """RetinaNet on generated scenes at 96 px: minutes on two cores, no file needed.

    `prism train scenes-retinanet --weights runs/scenes/best.safetensors`. Measured with seed 0 in 49 minutes on one
    core of an EPYC: box AP50 85.2, AP 65.4, and 49.1 and 40.4 under M30 and M50 (results/scenes).
    """
    return Detection(out=Path("runs/scenes-retinanet"), head="retinanet", epochs=4, **_scenes())


def scenes_maskrcnn() -> Detection:
    """Mask R-CNN on generated scenes at 96 px: minutes on two cores, no file needed.

    `prism train scenes-maskrcnn --weights runs/scenes/best.safetensors`: 2,500 steps of 1.5 s on one core of an EPYC,
    some 40 minutes on two.
    """
    return Detection(
        out=Path("runs/scenes-maskrcnn"), head="maskrcnn", epochs=2, proposals=100, regions=32, **_scenes()
    )


def _coco() -> dict[str, Any]:
    """The 1x schedule of PVTv2's protocol: 12 epochs, a batch of 8, the rate divided by ten at epochs 8 and 11."""
    return dict(
        model="prism_tiny",
        data="coco",
        classes=80,
        epochs=12,
        batch=8,
        weight_decay=1e-4,
        schedule="steps",
        milestones=(8, 11),
        warmup=0.034,  # 500 steps
        workers=4,
        log_every=50,
        save_every=2000,
    )


def _voc() -> dict[str, Any]:
    return dict(
        data="voc2012-seg256",
        network=LEAN,  # as the Imagenette weights that it starts from
        limit=300,  # of 1,449 while it trains: `prism occlusion` judges all
        sizes=(256,),
        longest=256,
        width=64,
        norm=True,
        anchor=16,
        epochs=6,
        batch=8,
        lr=5e-4,
        warmup=0.5,
        clip=5.0,
        eval_every=3,
    )


def _scenes() -> dict[str, Any]:
    return dict(
        data="scenes",
        network=("code_decay=0.9", "max_steps=3"),  # as the scenes weights that it starts from
        length=20_000,
        sizes=(96,),
        longest=96,
        width=64,
        norm=True,
        anchor=24,
        batch=16,
        lr=1e-3,
        warmup=0.1,
        clip=5.0,
        flip=False,
    )


def build(recipe: Detection, accelerator: Accelerator) -> Job:
    """The run that a recipe describes."""
    ranks = Ranks(accelerator.process_index, accelerator.num_processes)
    console = Console(stderr=True, quiet=ranks.rank > 0)
    size, amodal, masks = recipe.sizes[-1], recipe.amodal, recipe.head == "maskrcnn"
    trained = open_annotated(recipe.data, "train", size, None, recipe.length, amodal, masks)
    judged = open_annotated(recipe.data, recipe.split, size, recipe.limit, None, amodal, masks)
    for pictures in (trained, judged):
        if isinstance(pictures, CocoPictures) and pictures.broken:
            console.print(pictures.summary(), highlight=False, soft_wrap=True)
    files = [pictures.file for pictures in (trained, judged) if isinstance(pictures, CocoPictures)]
    if len({*files}) < len(files):
        raise ValueError(f"{files[0]} would be trained on and judged: name them apart, as instances_{{train,val}}.json")
    if (trained.categories, trained.classes) != (judged.categories, judged.classes):
        raise ValueError(f"{recipe.data} has other categories in its split {recipe.split} than in train")
    if recipe.classes not in (None, len(trained.classes)):
        count = len(trained.classes)
        raise ValueError(f"the data has {count} classes, the recipe asks for {recipe.classes}: say --classes {count}")
    learner = learner_of(recipe, len(trained.classes))
    groups = trained.groups() if isinstance(trained, CocoPictures) else None
    stream = ShuffledStream(
        trained,
        training_view(recipe.flip),
        recipe.batch // recipe.accumulate,
        recipe.seed,
        ranks,
        recipe.workers,
        listed,
        groups,
    )
    truth = cache(lambda: ground_truth(judged))  # scenes are rendered for it: once, when it is needed

    def evaluate(network: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        assert isinstance(network, DetectionNetwork)
        batch = max(1, recipe.batch // recipe.accumulate // ranks.world)
        found = detect(network, judged, accelerator, batch, recipe.workers)
        return {f"{recipe.split} {name}": n for name, n in judge(truth(), found, network.finds_masks).items()}

    best = f"{recipe.split} {'mask' if recipe.head == 'maskrcnn' else 'box'} AP"
    network, arguments = learner.network, model_arguments(_arguments(recipe))
    assert isinstance(network, DetectionNetwork)
    metadata = describe(network, design_of(recipe), trained.classes, trained.categories, arguments, amodal)
    return Job(recipe.model, learner, stream, evaluate, best, metadata.with_training(seed=recipe.seed))


def learner_of(recipe: Detection, classes: int) -> Detector:
    """The network of a recipe and its loss; the seed decides its first weights."""
    torch.manual_seed(recipe.seed)
    try:
        network = build_network(design_of(recipe), classes, **model_arguments(_arguments(recipe)))
    except TypeError as error:
        raise ValueError(f"{recipe.model} does not take {', '.join(recipe.network)}: {error}") from None
    backbone = network.maps.backbone
    if recipe.weights:
        backbone.load(recipe.weights)
    backbone.freeze(recipe.frozen)
    return Detector(network, Weights(recipe.ponder, recipe.vq), recipe.own_losses)


def random_batch(recipe: Detection, classes: int) -> Batch:
    """At most two pictures with one object each: what a dry run trains on."""
    count, side = min(2, recipe.batch), min(recipe.sizes[-1], recipe.longest)
    masks = torch.zeros(1, side, side, dtype=torch.uint8)
    masks[:, side // 4 : side // 2, side // 4 : side // 2] = 1
    box = torch.tensor([[side // 4, side // 4, side // 2, side // 2]]).float()
    targets = [dict(boxes=box, labels=torch.tensor([1 + place % classes]), masks=masks) for place in range(count)]
    return Batch([torch.rand(3, side, side) for _ in range(count)], targets, ["noise"] * count, [])


def cost_line(recipe: Detection, classes: int) -> str:
    """What the detector costs at the size that the recipe judges at, beside the paper's where that is its own."""
    size = (min(recipe.sizes[-1], recipe.longest), recipe.longest)
    found = costs(design_of(recipe), classes, size, **model_arguments(_arguments(recipe)))
    own = (recipe.model, recipe.width, classes) == ("prism_tiny", 256, 80)
    paper = f" (paper: {PUBLISHED['PRISM'][recipe.head == 'maskrcnn'][0]} M)" if own else ""
    return f"{found.parameters / 1e6:.1f} M parameters{paper}, {found.macs / 1e9:.1f} GMAC at {size[0]} x {size[1]}"


def design_of(recipe: Detection) -> Design:
    return Design(**{name: getattr(recipe, name) for name in Design._fields})


def _arguments(recipe: Detection) -> tuple[str, ...]:
    """Those of a recipe are meant for PRISM: another backbone named in its place does not get them."""
    return recipe.network if recipe.model.startswith("prism") else ()
