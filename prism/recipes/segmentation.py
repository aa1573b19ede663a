"""Recipes for semantic segmentation: the paper's on ADE20K, and smaller ones for VOC and for generated scenes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from accelerate import Accelerator
from torch import nn
from tyro.conf import arg

from prism.data.segmentation import VOID, Segmented, Sides, open_segmentation, stacked_labels, training_view
from prism.data.sources import limited
from prism.data.stream import Batch, Ranks, ShuffledStream
from prism.model.metadata import model_arguments
from prism.occlusion.segmentation import PUBLISHED, costs
from prism.recipes.classification import LEAN
from prism.tasks.learner import Weights
from prism.tasks.segmentation import Segmenter, SemanticFPN, judge
from prism.training.loop import Job
from prism.training.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Segmentation(Settings):
    """Fields of a segmentation recipe, beside those of every recipe."""

    model: str = "prism_nano"
    """a PRISM variant or a timm backbone"""
    network: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE...")] = ()
    """arguments of a PRISM, such as max_steps=6 memory=off preset=paper"""
    weights: Path | None = None
    """weights of a classifier, for the backbone to start from"""
    width: int = 256
    """channels of the pyramid; its branches have half of them"""
    dropout: float = 0.1
    """share of channels that the classifier does without in training"""
    data: str = "scenes"
    """a folder in the layout of ADE20K, of VOC, or of images/SPLIT beside masks/SPLIT; or scenes"""
    splits: tuple[str, ...] = ("val",)
    """splits that are judged; the first one names the best epoch"""
    limit: int | None = None
    """judge only so many pictures of a split, spread over it"""
    size: int = 512
    """side of the squares that training sees; of scenes, of whole pictures"""
    fit: Sides | None = None
    """long and short side that pictures are fitted into, in training and when judged; by default none are"""
    length: int | None = None
    """pictures an epoch, of generated scenes"""
    classes: int | None = None
    """number of classes of a folder of masks without classes.txt"""
    scales: tuple[float, float] = (0.5, 2.0)
    """by how much training shrinks and enlarges pictures"""
    flip: bool = True
    distortion: bool = True
    """whether training changes brightness, contrast, saturation and hue"""
    own_losses: bool = True
    """whether PRISM's ponder and memory losses join in"""
    ponder: float = 0.005
    """lambda of the ponder loss"""
    vq: float = 0.01
    """lambda of the memory's loss"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dropout", "ponder", "vq"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("size", "width", *(n for n in ("classes", "length") if getattr(self, n) is not None)):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.scales[0] <= self.scales[1]:
            raise ValueError(f"scales are the least and the most, both above 0, got {self.scales}")
        if self.fit is not None and min(self.fit) < 1:
            raise ValueError(f"sides to fit into must be at least 1, got {self.fit}")
        if not self.splits:
            raise ValueError("name at least one split to judge")


def ade20k_semfpn() -> Segmentation:
    """The paper's table 2(b): Semantic FPN on ADE20K, 512 px crops, 40k steps.

    `prism train ade20k-semfpn --data ADEChallengeData2016 --weights imagenet.safetensors --out runs/ade20k-semfpn`, by
    `accelerate launch` on several GPUs. Not run here: by the paper it gives prism_tiny 44.8 mIoU, 39.7 occluded.
    """
    return Segmentation(
        out=Path("runs/ade20k-semfpn"),
        model="prism_tiny",
        network=("drop_path_rate=0.1",),
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
    """VOC 2012 at long side 256 for two cores.

    `prism train voc-semfpn --data voc2012-seg256 --weights prism/weights/prism_nano.safetensors`, the weights of
    Imagenette that the package carries. Measured with seed 0 in 28 minutes of one core: mIoU 9.5, and 5.7 with 30 %
    of patches hidden; PVTv2-B0 7.8 and 5.4 (results/voc-segmentation).
    """
    return Segmentation(
        out=Path("runs/voc-semfpn"),
        data="voc2012-seg256",
        network=LEAN,  # as the Imagenette weights that it starts from
        limit=300,  # of 1,449 while it trains: `prism occlusion` judges all
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
    """Generated scenes at 96 px: minutes on two cores, no file needed.

    `prism train scenes-semfpn --weights runs/scenes/best.safetensors`, the weights from `prism train scenes`. Measured
    with seed 0 in 68 minutes of one core beside another training: mIoU 78.0 on clean scenes and 73.4 on val
    (results/scenes).
    """
    return Segmentation(
        out=Path("runs/scenes-semfpn"),
        data="scenes",
        network=("code_decay=0.9", "max_steps=3"),
        width=64,
        dropout=0.0,
        size=96,
        length=12_000,
        epochs=9,
        batch=8,  # after as many pictures a little further than 16
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


def build(recipe: Segmentation, accelerator: Accelerator) -> Job:
    """The run that a recipe describes."""
    ranks = Ranks(accelerator.process_index, accelerator.num_processes)
    train = _open(recipe, "train")
    judged = [_open(recipe, split) for split in recipe.splits]
    if recipe.limit is not None:
        judged = [limited(samples, recipe.limit) for samples in judged]
    learner = _learner(recipe, train.classes)
    network = learner.network
    view = training_view(
        recipe.size, network.mean, network.std, recipe.fit, recipe.scales, recipe.flip, recipe.distortion
    )
    batch = recipe.batch // recipe.accumulate
    stream = ShuffledStream(train, view, batch, recipe.seed, ranks, recipe.workers, stacked_labels)

    def evaluate(network: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        assert isinstance(network, SemanticFPN)
        at_once = max(1, batch // ranks.world)
        figures = {}
        for split, samples in zip(recipe.splits, judged, strict=True):
            found = judge(network, samples, recipe.fit, accelerator, at_once, recipe.workers)
            figures |= {f"{split} {name}": value for name, value in found.items()}
        return figures

    metadata = network.metadata(recipe.size, recipe.fit).with_training(seed=recipe.seed)
    return Job(recipe.model, learner, stream, evaluate, f"{recipe.splits[0]} mIoU", metadata)


def learner_of(recipe: Segmentation, classes: int) -> Segmenter:
    """The network of a recipe and its loss, for classes without names."""
    return _learner(recipe, [f"class {number}" for number in range(classes)])


def random_batch(recipe: Segmentation, classes: int) -> Batch:
    """As many pictures as a step takes of one process, at most two: what a dry run trains on."""
    count = min(2, recipe.batch)
    labels = torch.randint(classes, (count, recipe.size, recipe.size), dtype=torch.uint8)
    labels[:, 0] = VOID
    return Batch(torch.randn(count, 3, recipe.size, recipe.size), labels, ["noise"] * count, [])


def cost_line(recipe: Segmentation, classes: int) -> str:
    """What the segmenter costs at the size of training, beside the paper's where that is its own."""
    size, macs = costs(learner_of(recipe, classes).network, (recipe.size, recipe.size))
    own = (recipe.model, recipe.width, recipe.size, classes) == ("prism_tiny", 256, 512, 150)
    parameters, flops = (f" (paper: {said})" if own else "" for said in PUBLISHED["PRISM"][:2])
    at = f"{recipe.size} x {recipe.size}"
    return f"{size / 1e6:.1f} M parameters{parameters}, {macs / 1e9:.1f} GMAC{flops} at {at}"


def _learner(recipe: Segmentation, classes: list[str]) -> Segmenter:
    """The seed decides the first weights."""
    torch.manual_seed(recipe.seed)
    arguments = model_arguments(recipe.network) if recipe.model.startswith("prism") else {}
    try:
        network = SemanticFPN(recipe.model, classes, recipe.width, recipe.dropout, **arguments)
    except TypeError as error:
        raise ValueError(f"{recipe.model} does not take {', '.join(recipe.network)}: {error}") from None
    if recipe.weights:
        network.backbone.load(recipe.weights)
    return Segmenter(network, Weights(recipe.ponder, recipe.vq) if recipe.own_losses else None)


def _open(recipe: Segmentation, split: str) -> Segmented:
    length = recipe.length if split == "train" else None
    return open_segmentation(recipe.data, split, recipe.size, length, recipe.classes)
