"""BiFormer: a pyramid whose first three stages use bi-level routing attention (Zhu et al., CVPR 2023).

B images, H x W tokens, C channels. Written from the published description; weights of the official repository are
loaded through `prism.baselines.official`.
"""

from typing import Any

from timm.layers import DropPath, Mlp, trunc_normal_
from torch import Tensor, nn

from prism.baselines.attention import attend
from prism.baselines.cards import register
from prism.baselines.channels_last import DepthwiseConv
from prism.baselines.routing import BiLevelRoutingAttention
from prism.baselines.staged import Stage, StagedBackbone, drop_path_rates


class FullAttention(nn.Module):
    """Attention over the whole map, for the last stage, plus a depthwise convolution of its input (not of v)."""

    def __init__(self, dim: int, heads: int, lepe_kernel: int = 5):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.lepe = DepthwiseConv(dim, lepe_kernel)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).flatten(1, 2).chunk(3, dim=-1)
        out = attend(q, k, v, self.heads, self.scale).unflatten(1, x.shape[1:3])
        return self.proj(out + self.lepe(x))


class Block(nn.Module):
    """A convolution that encodes position, attention and an MLP, each added to its input (B, H, W, C)."""

    def __init__(self, dim: int, attn: nn.Module, mlp: nn.Module, drop_path: float = 0.0):
        super().__init__()
        self.pos_embed = DepthwiseConv(dim, 3)
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = attn
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = mlp
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pos_embed(x)
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


def conv_downsample(in_dim: int, dim: int, first: bool) -> nn.Sequential:
    """Stride 2 by one convolution; the first one of a network has stride 4 by two."""
    if not first:
        return nn.Sequential(nn.Conv2d(in_dim, dim, 3, 2, 1), nn.BatchNorm2d(dim))
    half = dim // 2
    return nn.Sequential(
        nn.Conv2d(in_dim, half, 3, 2, 1), nn.BatchNorm2d(half), nn.GELU(), *conv_downsample(half, dim, first=False)
    )


class BiFormer(StagedBackbone):
    """`windows` per side and the number of them `routed` to each are those of the stages before the last, which uses
    full attention. A map that does not divide into the windows is padded."""

    def __init__(
        self,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        widths: tuple[int, ...] = (64, 128, 256, 512),
        depths: tuple[int, ...] = (2, 2, 8, 2),
        windows: int = 7,
        routed: tuple[int, ...] = (1, 4, 16),
        head_dim: int = 32,
        last_heads: int = 8,
        mlp_ratio: float = 3.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ):
        if not len(widths) == len(depths) == len(routed) + 1:
            raise ValueError(
                f"widths and depths need one entry per stage and routed one less, got {widths}, {depths} and {routed}"
            )
        stages = []
        for index, (dim, rates) in enumerate(zip(widths, drop_path_rates(drop_path_rate, depths), strict=True)):
            blocks = [
                Block(
                    dim,
                    BiLevelRoutingAttention(dim, dim // head_dim, windows, routed[index])
                    if index < len(routed)
                    else FullAttention(dim, last_heads),
                    Mlp(dim, int(mlp_ratio * dim)),
                    rate,
                )
                for rate in rates
            ]
            stages.append(
                Stage(conv_downsample(in_chans if index == 0 else widths[index - 1], dim, index == 0), blocks)
            )
        norm = nn.BatchNorm2d(widths[-1])
        super().__init__(stages, widths, norm, num_classes, in_chans, global_pool, drop_rate)
        self.apply(_initialise)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


VARIANTS: dict[str, dict[str, Any]] = {
    # At 112 px a query sees 64, 64 and 49 tokens, about as many as in the tiny variant at 224 px (64 in each stage).
    "biformer_nano": dict(widths=(32, 64, 128, 256), depths=(2, 2, 6, 2), routed=(4, 16, 49)),
    "biformer_tiny": dict(),
    # The configuration of the next two has not been checked against the official code.
    "biformer_small": dict(depths=(4, 4, 18, 4)),
    "biformer_base": dict(widths=(96, 192, 384, 768), depths=(4, 4, 18, 4)),
}
register(
    BiFormer,
    VARIANTS,
    first_conv="stages.0.downsample.0",
    classifier="head.fc",
    license="mit",
    origin_url="https://github.com/rayleizhu/BiFormer",
)
