"""DeBiFormer: BiFormer whose blocks alternate routed attention and deformable agents (Long et al., ACCV 2024).

B images, H x W tokens, C channels. A published block is two of BiFormer's in a row, and counts as two here. Written
from the published description; weights of the official repository are loaded through `prism.baselines.official`.
"""

from typing import Any

from torch import nn

from prism.baselines.agents import DeformableRoutingAttention
from prism.baselines.biformer import Block, conv_downsample
from prism.baselines.cards import register
from prism.baselines.channels_last import ConvMlp
from prism.baselines.routing import BiLevelRoutingAttention
from prism.baselines.staged import Stage, StagedBackbone, drop_path_rates

HEAD_DIM, GROUP_DIM = 32, 64


class DeBiFormer(StagedBackbone):
    """Settings have one entry per stage. `pairs` are pairs of blocks; the first block of a pair routes tokens to
    `token_routed` windows (None: it has agents too), the second routes agents to `agent_routed` windows. Agents lie on
    a grid that is `offset_strides` coarser than the map.

    `img_size` only sets the size of the position tables: images of any size are taken, and padded to the windows.
    """

    def __init__(
        self,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        img_size: int | tuple[int, int] = 224,
        widths: tuple[int, ...] = (64, 128, 256, 512),
        pairs: tuple[int, ...] = (1, 1, 4, 1),
        windows: tuple[int, ...] = (7, 7, 7, 7),
        token_routed: tuple[int | None, ...] = (1, 4, 16, None),
        agent_routed: tuple[int, ...] = (4, 8, 16, 49),
        offset_kernels: tuple[int, ...] = (9, 7, 5, 3),
        offset_strides: tuple[int, ...] = (8, 4, 2, 1),
        mlp_ratio: float = 3.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ):
        settings = (widths, pairs, windows, token_routed, agent_routed, offset_kernels, offset_strides)
        if len({len(setting) for setting in settings}) != 1:
            raise ValueError(f"all settings need one entry per stage, got {settings}")
        if wrong := [width for width in widths if width % HEAD_DIM]:
            raise ValueError(f"widths must be multiples of {HEAD_DIM}, got {wrong[0]}")
        height, width = (img_size, img_size) if isinstance(img_size, int) else img_size
        rates = drop_path_rates(drop_path_rate, pairs)
        stages = []
        for index, dim in enumerate(widths):
            heads, groups, reduction = dim // HEAD_DIM, max(dim // GROUP_DIM, 1), 4 * 2**index
            blocks = []
            for rate in rates[index]:
                for routed in (token_routed[index], None):  # tokens to windows, then agents
                    attn = (
                        BiLevelRoutingAttention(dim, heads, windows[index], routed)
                        if routed
                        else DeformableRoutingAttention(
                            dim,
                            heads,
                            groups,
                            windows[index],
                            agent_routed[index],
                            offset_kernels[index],
                            offset_strides[index],
                            (-(-height // reduction), -(-width // reduction)),
                            mlp_ratio,
                        )
                    )
                    blocks.append(Block(dim, attn, ConvMlp(dim, int(mlp_ratio * dim)), rate))
            stages.append(
                Stage(conv_downsample(in_chans if index == 0 else widths[index - 1], dim, index == 0), blocks)
            )
        norm = nn.BatchNorm2d(widths[-1])
        super().__init__(stages, widths, norm, num_classes, in_chans, global_pool, drop_rate)

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith("bias_table")}


VARIANTS: dict[str, dict[str, Any]] = {
    # At 112 px maps are 28, 14, 7 and 4 wide, windows 4, 2, 1 and 1: as many tokens per query as in the tiny variant.
    "debiformer_nano": dict(
        img_size=112,
        widths=(32, 64, 128, 192),
        pairs=(1, 1, 2, 1),
        windows=(7, 7, 7, 4),
        token_routed=(4, 16, 49, None),
        agent_routed=(16, 32, 49, 16),
        offset_kernels=(7, 5, 3, 3),
        offset_strides=(4, 2, 1, 1),
    ),
    "debiformer_tiny": dict(),
}
register(
    DeBiFormer,
    VARIANTS,
    first_conv="stages.0.downsample.0",
    classifier="head.fc",
    license="apache-2.0",
    origin_url="https://github.com/maclong01/DeBiFormer",
)
