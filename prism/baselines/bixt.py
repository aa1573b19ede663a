"""BiXT: a few latents and all tokens of an image look at each other (Hiller et al., NeurIPS 2024).

B images, M latents, N = H x W tokens, C channels. Written from the published description; weights of the official
repository are loaded through `prism.baselines.official`.
"""

from typing import Any

import torch
from timm.layers import lecun_normal_
from timm.models._features import feature_take_indices
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from prism.baselines.cards import register
from prism.baselines.latents import Layer, State, fourier_positions
from prism.baselines.staged import Baseline, Indices, Maps, checked_images
from prism.model.evidence import padded


class BiXT(Baseline):
    """Classifies by the mean of its latents. Its maps, all of one stride, are the tokens of the two-way layers.

    `patch` is the side of the convolution that makes tokens and `stride` its step; images are padded to a multiple of
    the stride.
    """

    def __init__(
        self,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        patch: int = 16,
        stride: int = 16,
        dim: int = 192,
        depth: int = 12,
        heads: int = 6,
        latents: int = 64,
        mlp_ratio: float = 4.0,
        position_channels: int = 32,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ):
        super().__init__()
        if stride > patch or (patch - stride) % 2:
            raise ValueError(f"patch must exceed stride by an even number, got patch {patch} and stride {stride}")
        if depth < 2:
            raise ValueError(f"depth must be at least 2, as the last layer leaves the tokens unchanged, got {depth}")
        self.num_classes, self.in_chans = num_classes, in_chans
        self.stride, self.position_channels = stride, position_channels
        self.num_features = self.head_hidden_size = self.embed_dim = dim
        self.latents = nn.Parameter(torch.empty(1, latents, dim))
        self.patch_embed = nn.Conv2d(in_chans, dim, patch, stride, (patch - stride) // 2)
        self.position_proj = nn.Linear(2 * position_channels, dim)
        self.blocks = nn.Sequential(
            *(
                Layer(dim, heads, mlp_ratio, drop_path_rate * index / (depth - 1), both_ways=index < depth - 1)
                for index in range(depth)
            )
        )
        self.feature_info = [
            dict(num_chs=dim, reduction=stride, module=f"blocks.{index}") for index in range(depth - 1)
        ]
        self.save_memory = False
        self.fc_norm = nn.LayerNorm(dim, eps=1e-6)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(dim, num_classes) if num_classes else nn.Identity()
        self._set_pool(global_pool)
        self._initialise()

    def _set_pool(self, global_pool: str) -> None:
        if global_pool not in ("avg", ""):
            raise ValueError(f"global_pool must be 'avg' or '', got {global_pool!r}")
        self.global_pool = global_pool

    def _initialise(self) -> None:
        nn.init.trunc_normal_(self.latents, std=0.02)
        for name, module in self.named_modules():
            if isinstance(module, nn.Conv2d) or module is self.position_proj:  # published as a 1 x 1 convolution
                lecun_normal_(module.weight)
                nn.init.zeros_(module.bias)  # pyright: ignore[reportArgumentType]
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6 if "mlp" in name else 0.0)
        if isinstance(self.head, nn.Linear):
            nn.init.zeros_(self.head.weight)

    # ---- forward

    def start(self, images: Tensor) -> tuple[State, tuple[int, int]]:
        """The state before the first layer, and the height and width of the token map."""
        images = checked_images(images, self.in_chans)
        maps = self.patch_embed(padded(images, self.stride))
        height, width = maps.shape[2:]
        code = fourier_positions(height, width, self.position_channels, maps.device).to(self.position_proj.weight.dtype)
        tokens = maps.flatten(2).mT + self.position_proj(code).flatten(0, 1)
        return State(self.latents.expand(images.shape[0], -1, -1), tokens), (height, width)

    def run(self, layers: nn.Sequential, state: State) -> State:
        if not (self.save_memory and torch.is_grad_enabled()):
            return layers(state)
        for layer in layers:
            state = State(*checkpoint(layer, state, use_reentrant=False))
        return state

    def forward_features(self, images: Tensor) -> Tensor:
        state, _ = self.start(images)
        return self.run(self.blocks, state).latents

    def forward_head(self, latents: Tensor, pre_logits: bool = False) -> Tensor:
        x = latents.mean(dim=1) if self.global_pool else latents  # no norm before the mean
        x = self.head_drop(self.fc_norm(x))
        return x if pre_logits else self.head(x)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def intermediates(self, images: Tensor, indices: Indices, norm: bool, stop_early: bool) -> Maps:
        """The latents, and the tokens after two-way layers as maps. They have no norm to apply."""
        take, last = feature_take_indices(self._two_way_layers(), indices)
        state, size = self.start(images)
        maps = []
        for index in range(last + 1):
            state = self.run(self.blocks[index : index + 1], state)
            maps.append(state.tokens.mT.unflatten(2, size))
        state = state if stop_early else self.run(self.blocks[last + 1 :], state)
        return state.latents, [maps[index] for index in take]

    def _two_way_layers(self) -> int:
        return min(len(self.blocks), len(self.feature_info))

    # ---- the rest of timm's contract

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the layers that `forward_intermediates(indices)` does not need."""
        take, last = feature_take_indices(self._two_way_layers(), indices)
        self.blocks = self.blocks[: last + 1]
        if prune_norm:
            self.fc_norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return take

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        self.num_classes = num_classes
        if global_pool is not None:
            self._set_pool(global_pool)
        like = dict(device=self.latents.device, dtype=self.latents.dtype)
        self.head = nn.Linear(self.num_features, num_classes, **like) if num_classes else nn.Identity()  # pyright: ignore

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.save_memory = enable

    def no_weight_decay(self) -> set[str]:
        return {"latents"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        stem = r"^latents|^patch_embed|^position_proj"
        return dict(stem=stem, blocks=[(r"^blocks\.(\d+)", None), (r"^fc_norm", (99999,))])


VARIANTS: dict[str, dict[str, Any]] = {
    # 14 x 14 tokens at 112 px, as the tiny variant has at 224 px.
    "bixt_nano": dict(stride=8, dim=96, depth=10, heads=3, latents=32),
    "bixt_tiny_patch16": dict(),
    "bixt_tiny_patch16_d13": dict(depth=13),  # for dense tasks, which drop the last layer
    "bixt_tiny_patch16_s8": dict(stride=8),
    "bixt_tiny_patch16_s4": dict(stride=4),
}
register(
    BiXT,
    VARIANTS,
    out_indices=3,
    pooled=False,
    first_conv="patch_embed",
    classifier="head",
    license="apache-2.0",
    origin_url="https://github.com/mrkshllr/BiXT",
)
