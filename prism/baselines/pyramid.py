"""Any backbone as a pyramid: maps at strides 4, 8, 16 and 32, for the heads of dense tasks.

PRISM and other pyramids give them as they are. A network of one stride (XCiT, ViT) gives the maps of four depths,
brought to the four strides by transposed convolution and pooling, as its authors do for detection.
"""

import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

from timm.layers import Format
from torch import Tensor, nn

from prism.model.backbone import Prism, Trace
from prism.model.creation import build
from prism.model.memory import DERIVED
from prism.model.weights import read_weights

STRIDES = (4, 8, 16, 32)


class Maps(NamedTuple):
    features: list[Tensor]  # at strides 4, 8, 16, 32
    trace: Trace | None  # of PRISM in training


class PyramidBackbone(nn.Module):
    """`channels` are those of the four maps. Sides of images should be multiples of 32."""

    def __init__(self, name: str, **arguments: Any):
        super().__init__()
        self.name = name
        self._still: list[nn.Module] = []  # what is frozen
        self.resize = nn.ModuleList(nn.Identity() for _ in STRIDES)
        if name.startswith("prism_"):
            self.body = build(name, num_classes=0, global_pool="", **arguments)
            self.channels = [info["num_chs"] for info in self.body.feature_info]  # pyright: ignore
            return
        self.body, self.channels, own_stride = _features(name, arguments)
        # Swin's come last; sides alone would not always tell. EfficientNets and HRNets say nothing: they come first.
        self._channels_last = getattr(self.body, "output_fmt", Format.NCHW) == Format.NHWC
        if own_stride is not None:
            self.resize = nn.ModuleList(
                _to_stride(c, own_stride, s) for c, s in zip(self.channels, STRIDES, strict=True)
            )

    def forward(self, images: Tensor) -> Maps:
        if isinstance(self.body, Prism):
            found = self.body.pyramid(images, traced=self.training)
            return Maps(found.features, found.trace)
        levels = [level.permute(0, 3, 1, 2) if self._channels_last else level for level in self.body(images)]
        return Maps([bring(level) for bring, level in zip(self.resize, levels, strict=True)], None)

    def load(self, path: Path) -> None:
        """Weights of a classifier of the same name, its head left out."""
        own = self.body.state_dict()
        found = {name: value for key, value in read_weights(path).items() for name in _names_within(key)}
        fits = {key: value for key, value in found.items() if key in own and own[key].shape == value.shape}
        if missing := next((key for key in own if key not in fits and not key.endswith(DERIVED)), None):
            raise ValueError(f"{path} is not of {self.name}: {missing!r} is missing there or has another shape")
        self.body.load_state_dict(fits)

    def freeze(self, stages: int) -> None:
        """Keep what the first `stages` maps need as it is: no gradients there, and no codebook or statistics move."""
        self.body.requires_grad_(True)
        if stages:
            info: Any = self.body.feature_info
            names = [i["module"] for i in (info if isinstance(info, list) else info.get_dicts())]
            if stages > len(names):
                raise ValueError(f"{self.name} has {len(names)} stages: {stages} cannot be frozen")
            last = names[stages - 1].replace(".", "_" if hasattr(self.body, "return_layers") else ".")
            within = [name for name, _ in self.body.named_parameters()]
            end = max(place for place, name in enumerate(within) if f"{last}." in name)
            for _, parameter in list(self.body.named_parameters())[: end + 1]:
                parameter.requires_grad_(False)
        self._still = [module for module in self.body.modules() if _is_frozen(module)]
        self.train(self.training)

    def train(self, mode: bool = True) -> "PyramidBackbone":
        super().train(mode)
        for module in self._still:
            module.eval()
        return self

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute activations in the backward pass."""
        body: Any = self.body if hasattr(self.body, "set_grad_checkpointing") else getattr(self.body, "model", None)
        if not hasattr(body, "set_grad_checkpointing"):
            raise ValueError(f"{self.name} cannot recompute its activations: train without --save-memory")
        body.set_grad_checkpointing(enable)
        for module in self.body.modules():  # what is computed twice must not overwrite what it is computed from
            if enable and getattr(module, "inplace", False):
                module.inplace = False  # pyright: ignore[reportArgumentType]


def _names_within(key: str) -> tuple[str, ...]:
    """What a classifier's weight may be called once timm has taken the maps out of it: stages.0 as stages_0, or all
    below `model`."""
    return key, re.sub(r"^(\w+)\.(\d+)\.", r"\1_\2.", key), f"model.{key}"


def _is_frozen(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def _features(name: str, arguments: dict[str, Any]) -> tuple[nn.Module, list[int], int | None]:
    """A timm network that returns four maps, their channels, and their stride if they share one."""
    whole: Any = build(name, num_classes=0)
    if not hasattr(whole, "feature_info"):  # CoaT, CrossViT
        raise ValueError(f"timm cannot extract feature maps from {name}; a pyramid needs strides {STRIDES}")
    takes = inspect.signature(type(whole).__init__).parameters
    if "dynamic_img_size" in takes:  # plain ViTs
        arguments = arguments | dict(dynamic_img_size=True)
    if "strict_img_size" in takes:  # Swin and its kin
        arguments = arguments | dict(strict_img_size=False)
    reductions = [info["reduction"] for info in whole.feature_info]
    own_stride = reductions[0] if len(set(reductions)) == 1 and len(reductions) >= 4 else None
    if own_stride:
        chosen = _four_depths(len(reductions))
    elif set(STRIDES) <= set(reductions):
        chosen = [len(reductions) - 1 - reductions[::-1].index(stride) for stride in STRIDES]
    else:
        raise ValueError(f"{name} has maps at strides {reductions}, a pyramid needs {STRIDES}")
    body: Any = build(name, features_only=True, out_indices=chosen, **arguments)
    return body, list(body.feature_info.channels()), own_stride


def _four_depths(count: int) -> list[int]:
    """The ends of four equal parts."""
    return [round(count * quarter / 4) - 1 for quarter in range(1, 5)]


def _to_stride(channels: int, own: int, wanted: int) -> nn.Module:
    if own % wanted and wanted % own:
        raise ValueError(f"a map at stride {own} cannot be brought to stride {wanted}")
    layers: list[nn.Module] = []
    while own > wanted:
        layers += [nn.ConvTranspose2d(channels, channels, 2, 2), nn.GroupNorm(1, channels), nn.GELU()]
        own //= 2
    return nn.Sequential(*layers[:-2]) if layers else nn.MaxPool2d(wanted // own) if wanted > own else nn.Identity()
