"""A network as an exported file holds it: images in, named tensors out, for batches and images of any size."""

import copy
import warnings

import torch
from timm.models.davit import DaVit
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from prism.baselines.debiformer import DeBiFormer
from prism.export.looping import GraphLoop
from prism.model.backbone import SMALLEST_SIDE, Prism
from prism.model.stage import Stage
from prism.tasks.segmentation.network import SemanticFPN

LARGEST_SIDE = 16_384
STRIDE = 32  # of the coarsest map


class Exportable(nn.Module):
    """A copy of a network, and `names` for what it returns.

    These are logits, or with `features` a backbone's maps; of PRISM also the steps (B, stages) that images took.
    """

    def __init__(self, network: nn.Module, features: bool = False):
        super().__init__()
        if features and not hasattr(network, "forward_intermediates"):
            raise ValueError(f"{type(network).__name__} is no backbone: leave out --features")
        self.network = copy.deepcopy(network).eval().float()
        self.features = features
        self._stages = [module for module in self.network.modules() if isinstance(module, Stage)]
        for stage in self._stages:
            stage.refine = GraphLoop()
        levels = range(len(self.network.feature_info)) if features else ()  # pyright: ignore[reportArgumentType]
        self.names = [*([f"map_{level}" for level in levels] or ["logits"]), *(["steps"] if self._stages else [])]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = answers(self.network, images, self.features)
        steps = [_steps(stage, images) for stage in self._stages]
        return *found, *([torch.stack(steps, dim=1)] if steps else [])


def answers(network: nn.Module, images: Tensor, features: bool) -> list[Tensor]:
    """The maps of a backbone, or the logits alone."""
    if features:
        return network.forward_intermediates(images, intermediates_only=True)  # pyright: ignore[reportCallIssue]
    return [network(images)]


def reference(network: nn.Module, images: Tensor, features: bool) -> list[Tensor]:
    """What a file must answer: in the order of `Exportable.names`, from the network as Python runs it."""
    with torch.inference_mode():
        found = answers(network, images, features)
        if isinstance(network, Prism):
            trace = network.forward_traced(images, slot_maps=False).trace
            found = [*found, torch.stack([stage.steps for stage in trace.stages], dim=1)]
        return found


def program(exportable: Exportable, size: int) -> ExportedProgram:
    """The network as one graph, traced with images of about `size`.

    A network that takes any batch and any size keeps them open. A segmenter's sides are multiples of 32, and what
    was built for one size stays at that.
    """
    side = max(size // STRIDE, 2) * STRIDE
    images = torch.zeros(2, 3, side, side + STRIDE)
    sides = {2: Dim.AUTO(min=SMALLEST_SIDE, max=LARGEST_SIDE), 3: Dim.AUTO(min=SMALLEST_SIDE, max=LARGEST_SIDE)}
    if isinstance(exportable.network, SemanticFPN):
        most = LARGEST_SIDE // STRIDE
        sides = {2: STRIDE * Dim("rows", min=1, max=most), 3: STRIDE * Dim("columns", min=1, max=most)}
    elif _one_size(exportable.network):
        images, sides = torch.zeros(2, 3, size, size), {}
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            return torch.export.export(exportable, (images,), dynamic_shapes=({0: Dim.AUTO, **sides},), strict=False)
        except Exception as error:  # a foreign network may do anything that a graph cannot hold
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{type(exportable.network).__name__} cannot be exported: {reason}") from None


def sizes_to_check(exportable: Exportable, traced: ExportedProgram, size: int) -> list[tuple[int, int]]:
    """The size it was trained at; where others are open, two more, the last of odd sides where these may be."""
    if not any_size(traced):
        return [(size, size)]
    odd = STRIDE if isinstance(exportable.network, SemanticFPN) else 13
    return [(size, size), (size + STRIDE, size + 2 * STRIDE), (size + odd, size)]


def any_size(traced: ExportedProgram) -> bool:
    """Whether the graph is open for images of other sizes than it was traced with."""
    [images] = [node for node in traced.graph.nodes if node.op == "placeholder" and node.name == "images"]
    return not any(isinstance(side, int) for side in images.meta["val"].shape[2:])


def _one_size(network: nn.Module) -> bool:
    """Whether timm says that the network was built for one size of images; or it is one of two that take any, but
    whose padded windows keep `torch.export` busy for minutes unless their sizes are known."""
    one_size = getattr(network, "pretrained_cfg", {}).get("fixed_input_size", False)
    return one_size or isinstance(network, DaVit | DeBiFormer)


def _steps(stage: Stage, images: Tensor) -> Tensor:
    if stage.fixed_steps is not None:
        return torch.full_like(images[:, 0, 0, 0], stage.fixed_steps, dtype=torch.long)
    assert isinstance(stage.refine, GraphLoop)
    assert stage.refine.steps is not None
    return stage.refine.steps
