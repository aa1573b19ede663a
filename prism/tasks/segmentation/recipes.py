"""Recipes for semantic segmentation: the paper's on ADE20K, and smaller ones for VOC and for generated scenes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from prism.model.checks import LARGEST, Range, Share, Side
from prism.tasks.recipe import LEAN, SCENES, Recipe


@dataclass(frozen=True, kw_only=True)
class Segmentation(Recipe):
    """Fields of a segmentation recipe, in addition to those of every recipe."""

    task = "segmentation"

    width: Side = 256
    """channels of the pyramid; its branches have half of them"""
    dropout: Share = 0.1
    """dropout rate before the classifier"""
    splits: tuple[str, ...] = ("val",)
    """splits that are evaluated; the first one decides which epoch is best"""
    size: Side = 512
    """side of the square training crops; for scenes, of the whole image"""
    fit: Annotated[tuple[int, int], Range(1, LARGEST)] | None = None
    """long and short side that images are resized to fit into, in training and evaluation; by default no resizing"""
    scales: Annotated[tuple[float, float], Range(0.05, 10)] = (0.5, 2.0)
    """range of the random scale in training"""
    distortion: bool = True
    """whether training changes brightness, contrast, saturation and hue"""
    own_losses: bool = True
    """add PRISM's ponder and memory losses"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scales[0] > self.scales[1]:
            raise ValueError(f"scales must be the smallest and the largest, got {self.scales}")
        if not self.splits:
            raise ValueError("name at least one split to evaluate")


def ade20k_semfpn() -> Segmentation:
    """The paper's table 2(b): Semantic FPN on ADE20K, 512 px crops, 40k steps.

    `prism train ade20k-semfpn --data ADEChallengeData2016 --weights imagenet.safetensors --out runs/ade20k-semfpn`, by
    `accelerate launch` on several GPUs. Not run here: by the paper it gives prism_tiny 44.8 mIoU, 39.7 occluded.
    """
    return Segmentation(
        out=Path("runs/ade20k-semfpn"),
        model="prism_tiny",
        prism_network=("drop_path_rate=0.1",),
        data="ADEChallengeData2016",
        classes=150,
        fit=(2048, 512),
        epochs=32,
        steps=40_000,
        batch=16,
        lr=1e-4,
        weight_decay=1e-4,
        schedule="poly",
        precision="bf16",
        eval_every=4,
        save_every=2000,
        workers=8,
        log_every=50,
    )


def voc_semfpn() -> Segmentation:
    """Semantic FPN on PASCAL VOC at a long side of 256, for two cores.

    `prism train voc-semfpn --data voc2012-seg256 --weights prism/weights/prism_nano.imagenette.safetensors`,
    weights that the package carries. Measured with seed 0 in 25 minutes of one core: mIoU 13.3, and 10.8 with 30 % of
    patches hidden; PVTv2-B0 13.8 and 7.6 (results/voc-segmentation).
    """
    return Segmentation(
        out=Path("runs/voc-semfpn"),
        data="voc2012-seg256",
        prism_network=LEAN,  # as the Imagenette weights that it starts from
        limit=300,  # of 1,449 while it trains: `prism occlusion` evaluates all
        width=64,
        size=160,
        fit=(256, 256),
        epochs=16,
        batch=16,
        lr=5e-4,
        weight_decay=0.01,
        schedule="poly",
        warmup=1,
        clip=5.0,
        eval_every=4,
        log_every=10,
    )


def scenes_semfpn() -> Segmentation:
    """Semantic FPN on generated scenes at 96 px: about an hour on one core, no files needed.

    `prism train scenes-semfpn --weights runs/scenes/best.safetensors`, the weights from `prism train scenes`. Measured
    with seed 0 in 68 minutes of one core beside another training: mIoU 78.0 on clean scenes and 73.4 on val
    (results/scenes).
    """
    return Segmentation(
        out=Path("runs/scenes-semfpn"),
        data="scenes",
        prism_network=SCENES,
        width=64,
        dropout=0.0,
        size=96,
        length=12_000,
        epochs=9,
        batch=8,  # after as many images a little further than 16
        lr=1.5e-3,
        weight_decay=0.01,
        schedule="poly",
        warmup=0.05,
        clip=5.0,
        scales=(1.0, 1.0),
        distortion=False,
        save_every=500,
        log_every=25,
    )


RECIPES = {"ade20k-semfpn": ade20k_semfpn, "voc-semfpn": voc_semfpn, "scenes-semfpn": scenes_semfpn}
