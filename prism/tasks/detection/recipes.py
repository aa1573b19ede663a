"""Recipes for detection: the paper's on COCO, and smaller ones for real and for generated images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from prism.model.checks import LARGEST, Range, Side
from prism.tasks.recipe import LEAN, SCENES, Recipe

Head = Literal["retinanet", "maskrcnn"]
NORM_GROUPS = 8


@dataclass(frozen=True, kw_only=True)
class Detection(Recipe):
    """Fields of a detection recipe, in addition to those of every recipe."""

    task = "detection"

    head: Head = "retinanet"
    """boxes by RetinaNet, or boxes and masks by Mask R-CNN"""
    frozen: Annotated[int, Range(0, 1000)] = 0
    """number of backbone stages to freeze, from the first"""
    split: str = "val"
    """the split that is evaluated"""
    amodal: bool = True
    """for scenes: the target is the whole object; --no-amodal: only its visible part"""
    sizes: Annotated[tuple[int, ...], arg(metavar="SIDE..."), Range(1, LARGEST)] = (800,)
    """short side of the images: training draws one at random per image, evaluation uses the last"""
    longest: Side = 1333
    """upper limit on the long side of the images"""
    width: Side = 256
    """channels of the feature pyramid and the heads"""
    anchor: Side = 32
    """side of the smallest anchor in pixels"""
    proposals: Annotated[int, Range(1, 100_000)] = 1000
    """region proposals kept per image (Mask R-CNN)"""
    regions: Annotated[int, Range(1, 100_000)] = 512
    """region proposals sampled per image for the loss (Mask R-CNN)"""
    norm: bool = False
    """group norms in the feature pyramid and the heads: a short training gets further with them"""
    own_losses: bool = True
    """whether PRISM's ponder and memory losses join those of detection"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm and self.width % NORM_GROUPS:
            raise ValueError(f"with norm the width must be a multiple of {NORM_GROUPS}, got {self.width}")
        if not self.sizes:
            raise ValueError("sizes must be at least one side")


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

    `prism train voc-retinanet --data voc2012-seg256 --weights prism/weights/prism_nano.imagenette.safetensors`,
    weights that the package carries.
    """
    return Detection(out=Path("runs/voc-retinanet"), head="retinanet", **_voc())


def voc_maskrcnn() -> Detection:
    """Mask R-CNN on PASCAL VOC at a long side of 256, for two cores.

    `prism train voc-maskrcnn --data voc2012-seg256 --weights prism/weights/prism_nano.imagenette.safetensors`,
    weights that the package carries: 1,098 steps, 22 minutes of one core of an EPYC in bfloat16. Measured with seed 0:
    box AP 4.9, mask AP 2.8; 3.3 and 1.5 under M30; PVTv2-B0 4.7, 3.0, 2.3, 1.2 (results/voc-detection).
    """
    return Detection(out=Path("runs/voc-maskrcnn"), head="maskrcnn", proposals=200, regions=64, **_voc())


def scenes_retinanet() -> Detection:
    """RetinaNet on generated scenes at 96 px: under an hour on two cores, no files needed.

    `prism train scenes-retinanet --weights runs/scenes/best.safetensors`. Measured with seed 0 in 49 minutes on one
    core of an EPYC: box AP50 85.2, AP 65.4, and 49.1 and 40.4 under M30 and M50 (results/scenes).
    """
    return Detection(out=Path("runs/scenes-retinanet"), head="retinanet", epochs=4, **_scenes())


def scenes_maskrcnn() -> Detection:
    """Mask R-CNN on generated scenes at 96 px: under an hour on two cores, no files needed.

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
        prism_network=LEAN,  # as the Imagenette weights that it starts from
        limit=300,  # of 1,449 while it trains: `prism occlusion` evaluates all
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
        prism_network=SCENES,  # as the scenes weights that it starts from
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


RECIPES = {
    "coco-retinanet": coco_retinanet,
    "coco-maskrcnn": coco_maskrcnn,
    "voc-retinanet": voc_retinanet,
    "voc-maskrcnn": voc_maskrcnn,
    "scenes-retinanet": scenes_retinanet,
    "scenes-maskrcnn": scenes_maskrcnn,
}
