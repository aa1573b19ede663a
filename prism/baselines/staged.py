"""Backbones of four stages at strides 4, 8, 16 and 32, behind timm's contract."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from timm.layers import ClassifierHead
from timm.models._features import feature_take_indices
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Stage(nn.Module):
    """A downsampling on (B, C, H, W), then blocks on channels-last maps."""

    def __init__(self, downsample: nn.Module, blocks: Sequence[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.downsample = downsample
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or nn.Identity()
        self.save_memory = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x.contiguous(memory_format=torch.channels_last))
        return self.norm(self.run_blocks(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)

    def run_blocks(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.run(block, x)
        return x

    def run(self, block: Callable[..., Any], *inputs: Any) -> Any:
        """Call the block; with `save_memory`, its activations are computed again in the backward pass."""
        if self.save_memory and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)


Indices = int | list[int] | None
Maps = tuple[Tensor, list[Tensor]]  # what the last layer gave, and the maps that were asked for


class Baseline(nn.Module):
    """What timm asks of every backbone, from what each has of its own."""

    def intermediates(self, images: Tensor, indices: Indices, norm: bool, stop_early: bool) -> Maps:
        raise NotImplementedError

    def forward_intermediates(
        self,
        x: Tensor,
        indices: Indices = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | Maps:
        if output_fmt != "NCHW":
            raise ValueError(f"output_fmt must be NCHW, got {output_fmt!r}")
        last, taken = self.intermediates(x, indices, norm, stop_early or intermediates_only)
        return taken if intermediates_only else (last, taken)


class StagedBackbone(Baseline):
    """Stages, a final norm and a linear head on the mean of the last map."""

    def __init__(
        self,
        stages: Sequence[Stage],
        widths: Sequence[int],
        norm: nn.Module | None = None,
        num_classes: int = 1000,
        in_chans: int = 3,
        global_pool: str = "avg",
        drop_rate: float = 0.0,
    ):
        super().__init__()
        self.num_classes, self.in_chans = num_classes, in_chans
        self.num_features = self.head_hidden_size = widths[-1]
        self.feature_info = [
            dict(num_chs=width, reduction=4 * 2**index, module=f"stages.{index}") for index, width in enumerate(widths)
        ]
        self.stages = nn.Sequential(*stages)
        self.norm = norm or nn.Identity()
        self.head = ClassifierHead(widths[-1], num_classes, pool_type=global_pool, drop_rate=drop_rate)

    def forward_features(self, images: Tensor) -> Tensor:
        return self.norm(self.stages(checked_images(images, self.in_chans)))

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        return self.head(features, pre_logits=pre_logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def intermediates(self, images: Tensor, indices: Indices, norm: bool, stop_early: bool) -> Maps:
        """`norm` applies the final norm to the last stage's map, the only one it was trained on."""
        take, last = feature_take_indices(len(self.stages), indices)
        x, maps = checked_images(images, self.in_chans), []
        for stage in self.stages[: last + 1] if stop_early else self.stages:
            x = stage(x)
            maps.append(x)
        if len(maps) == len(self.feature_info):
            x = self.norm(x)
            maps[-1] = x if norm else maps[-1]
        return x, [maps[index] for index in take]

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages that `forward_intermediates(indices)` does not need."""
        take, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return take

    def get_classifier(self) -> nn.Module:
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        self.num_classes = num_classes
        self.head.reset(num_classes, global_pool)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        for stage in self.stages:
            stage.save_memory = enable  # pyright: ignore[reportArgumentType]

    def no_weight_decay(self) -> set[str]:
        return set()

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        by_block = [
            (r"^stages\.(\d+)\.downsample", (0,)),
            (r"^stages\.(\d+)\.blocks\.(\d+)", None),
            (r"^stages\.(\d+)\.norm", (99999,)),
            (r"^norm", (99999,)),
        ]
        return dict(stem=r"^stages\.0\.downsample", blocks=r"^stages\.(\d+)" if coarse else by_block)


def drop_path_rates(rate: float, depths: Sequence[int]) -> list[list[float]]:
    """From 0 at the first block to `rate` at the last one, by stage."""
    blocks = iter(range(sum(depths)))
    last = max(sum(depths) - 1, 1)
    return [[rate * next(blocks) / last for _ in range(depth)] for depth in depths]


def checked_images(images: Tensor, in_chans: int) -> Tensor:
    if images.ndim != 4 or images.shape[1] != in_chans:
        raise ValueError(f"expected images (B, {in_chans}, H, W), got {tuple(images.shape)}")
    return images
