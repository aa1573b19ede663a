"""PaCa-ViT: patches attend to a few learned clusters of patches (Grainger et al., CVPR 2023).

B images, N = H x W patches of C channels, M clusters. Written from the published description; weights of the official
repository are loaded through `prism.baselines.official`.
"""

import math
from typing import Any

from timm.layers import DropPath, LayerNorm2d
from torch import Tensor, nn

from prism.baselines.attention import attend
from prism.baselines.cards import register
from prism.baselines.channels_last import ConvMlp, DepthwiseConv
from prism.baselines.staged import Stage, StagedBackbone, drop_path_rates


class Downsample(nn.Module):
    """Stride 2 by one convolution; the first one of the network has stride 4 by two, with nothing in between."""

    def __init__(self, in_dim: int, dim: int, first: bool):
        super().__init__()
        half = dim // 2
        self.proj = (
            nn.Sequential(nn.Conv2d(in_dim, half, 3, 2, 1), nn.Conv2d(half, dim, 3, 2, 1))
            if first
            else nn.Conv2d(in_dim, dim, 3, 2, 1)
        )
        self.norm = LayerNorm2d(dim, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.proj(x))


class Clustering(nn.Module):
    """How much each patch contributes to each cluster: (B, H, W, C) -> (B, M, N), summing to 1 over patches."""

    def __init__(self, dim: int, clusters: int, kernel: int = 7):
        super().__init__()
        self.dwconv = DepthwiseConv(dim, kernel)
        self.act = nn.GELU()
        self.fc1 = nn.Linear(dim, dim)
        self.fc2 = nn.Linear(dim, clusters, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.fc1(self.act(self.dwconv(x))))
        return self.fc2(x).flatten(1, 2).softmax(dim=1).mT


class ClusterAttention(nn.Module):
    """Queries are patches; keys and values are clusters, or the patches themselves if there is no assignment."""

    def __init__(self, dim: int, heads: int, clustered: bool):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.cluster_norm = nn.LayerNorm(dim, eps=1e-6) if clustered else None
        self.q, self.k, self.v, self.proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor, assignment: Tensor | None) -> Tensor:
        patches = x.flatten(1, 2)
        sources = patches
        if self.cluster_norm is not None and assignment is not None:
            sources = self.cluster_norm(assignment @ patches)  # (B, M, C)
        out = attend(self.q(patches), self.k(sources), self.v(sources), self.heads, self.scale)
        return self.proj(out).unflatten(1, x.shape[1:3])


class Block(nn.Module):
    """`clusters` is the number that this block forms itself; `clustered` says whether it attends to clusters at all."""

    def __init__(self, dim: int, heads: int, clusters: int, clustered: bool, mlp_ratio: float, drop_path: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.clustering = Clustering(dim, clusters) if clusters else None
        self.attn = ClusterAttention(dim, heads, clustered)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = ConvMlp(dim, int(mlp_ratio * dim))
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor, assignment: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(B, H, W, C) and the assignment of the block before -> the new map, and the assignment for the next."""
        normed = self.norm1(x)
        if self.clustering is not None:
            assignment = self.clustering(normed)
        x = x + self.drop_path(self.attn(normed, assignment))
        return x + self.drop_path(self.mlp(self.norm2(x))), assignment


class PacaStage(Stage):
    """Its first block assigns patches to clusters; the others reuse the assignment, each on its own patches."""

    def run_blocks(self, x: Tensor) -> Tensor:
        assignment = None
        for block in self.blocks:
            x, assignment = self.run(block, x, assignment)
        return x


class PacaViT(StagedBackbone):
    """`clusters` has one entry per stage; 0 is ordinary self-attention. The norm that ends a stage feeds the next."""

    def __init__(
        self,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        widths: tuple[int, ...] = (96, 192, 320, 384),
        depths: tuple[int, ...] = (2, 2, 4, 2),
        heads: tuple[int, ...] = (2, 4, 8, 16),
        clusters: tuple[int, ...] = (100, 100, 100, 0),
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ):
        if not len(widths) == len(depths) == len(heads) == len(clusters):
            raise ValueError(
                f"widths, depths, heads and clusters need one entry per stage, got {widths}, {depths}, {heads} and "
                f"{clusters}"
            )
        stages, channels = [], in_chans
        for dim, n_heads, n_clusters, rates in zip(
            widths, heads, clusters, drop_path_rates(drop_path_rate, depths), strict=True
        ):
            blocks = [
                Block(dim, n_heads, n_clusters if index == 0 else 0, n_clusters > 0, mlp_ratio, rate)
                for index, rate in enumerate(rates)
            ]
            downsample = Downsample(channels, dim, first=not stages)
            stages.append(PacaStage(downsample, blocks, nn.LayerNorm(dim, eps=1e-6)))
            channels = dim
        super().__init__(stages, widths, None, num_classes, in_chans, global_pool, drop_rate)
        self.apply(_initialise)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, Clustering):
        for layer in (module.fc1, module.fc2):  # 1 x 1 convolutions in the published model
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.out_features))
    elif isinstance(module, nn.Conv2d):
        fan_out = module.weight[0, 0].numel() * module.out_channels // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
    elif isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
    if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
        nn.init.zeros_(module.bias)


VARIANTS: dict[str, dict[str, Any]] = {
    # 49 clusters: at 112 px the third stage has no more patches than that.
    "pacavit_nano": dict(widths=(48, 96, 160, 192), heads=(1, 2, 4, 8), clusters=(49, 49, 49, 0)),
    "pacavit_tiny": dict(),
}
register(
    PacaViT,
    VARIANTS,
    crop_pct=0.9,
    first_conv="stages.0.downsample.proj.0",
    classifier="head.fc",
    license="mit",
    origin_url="https://github.com/iVMCL/PaCaViT",
)
