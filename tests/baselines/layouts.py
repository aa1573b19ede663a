"""The keys and shapes of official checkpoints, written down independently of our models."""

from collections.abc import Iterator, Sequence

Shape = tuple[int, ...]
Layout = dict[str, Shape]


def layer(key: str, *shape: int, bias: bool = True) -> Iterator[tuple[str, Shape]]:
    yield f"{key}.weight", shape
    if bias:
        yield f"{key}.bias", shape[:1]


def batch_norm(key: str, dim: int) -> Iterator[tuple[str, Shape]]:
    yield from layer(key, dim)
    yield f"{key}.running_mean", (dim,)
    yield f"{key}.running_var", (dim,)
    yield f"{key}.num_batches_tracked", ()


def _bi_shell(widths: Sequence[int], classes: int) -> Iterator[tuple[str, Shape]]:
    """What BiFormer and DeBiFormer share: stem, downsampling, final norm, head."""
    first = widths[0]
    yield from layer("downsample_layers.0.0", first // 2, 3, 3, 3)
    yield from batch_norm("downsample_layers.0.1", first // 2)
    yield from layer("downsample_layers.0.3", first, first // 2, 3, 3)
    yield from batch_norm("downsample_layers.0.4", first)
    for stage in (1, 2, 3):
        yield from layer(f"downsample_layers.{stage}.0", widths[stage], widths[stage - 1], 3, 3)
        yield from batch_norm(f"downsample_layers.{stage}.1", widths[stage])
    yield from batch_norm("norm", widths[-1])
    yield from layer("head", classes, widths[-1])


def _routing(key: str, dim: int) -> Iterator[tuple[str, Shape]]:
    yield from layer(f"{key}.lepe", dim, 1, 5, 5)
    yield from layer(f"{key}.qkv.qkv", 3 * dim, dim)
    yield from layer(f"{key}.wo", dim, dim)


def biformer(widths: Sequence[int] = (64, 128, 256, 512), depths: Sequence[int] = (2, 2, 8, 2), classes: int = 1000):
    def entries() -> Iterator[tuple[str, Shape]]:
        yield from _bi_shell(widths, classes)
        for stage, (dim, depth) in enumerate(zip(widths, depths, strict=True)):
            for block in range(depth):
                key = f"stages.{stage}.{block}"
                yield from layer(f"{key}.pos_embed", dim, 1, 3, 3)
                yield from layer(f"{key}.norm1", dim)
                yield from layer(f"{key}.norm2", dim)
                if stage < 3:
                    yield from _routing(f"{key}.attn", dim)
                else:
                    yield from layer(f"{key}.attn.qkv", 3 * dim, dim, bias=False)
                    yield from layer(f"{key}.attn.proj", dim, dim)
                    yield from layer(f"{key}.attn.lepe", dim, 1, 5, 5)
                yield from layer(f"{key}.mlp.0", 3 * dim, dim)
                yield from layer(f"{key}.mlp.3", dim, 3 * dim)

    return dict(entries())


def bixt(dim: int = 192, depth: int = 12, latents: int = 64, grid: int = 14, classes: int = 1000) -> Layout:
    def mlp(key: str) -> Iterator[tuple[str, Shape]]:
        yield from layer(f"{key}.fc1", 4 * dim, dim)
        yield from layer(f"{key}.fc2", dim, 4 * dim)

    def entries() -> Iterator[tuple[str, Shape]]:
        yield "latents", (1, latents, dim)
        yield from layer("patch_embed.proj", dim, 3, 16, 16)
        yield "fourier_pos_encode.pos", (64, grid, grid)
        yield from layer("fourier_pos_encode.token_projection", dim, 64, 1, 1)
        for index in range(depth):
            own, cross = (
                f"blocks.{index}.{part}" for part in ("self_attention_latents", "cross_attention_latents_token")
            )
            both_ways = index < depth - 1
            yield from layer(f"{own}.norm1", dim)
            yield from layer(f"{own}.norm2", dim)
            yield from layer(f"{own}.attn.qkv", 3 * dim, dim)
            yield from layer(f"{own}.attn.proj", dim, dim)
            yield from mlp(f"{own}.mlp")
            for norm in ("norm1_lat", "norm1_pat", "norm2_lat", *(["norm2_pat"] if both_ways else [])):
                yield from layer(f"{cross}.{norm}", dim)
            if both_ways:
                yield from layer(f"{cross}.attn.rv_latents", 2 * dim, dim)
                yield from layer(f"{cross}.attn.proj_pat", dim, dim)
                yield from mlp(f"{cross}.mlp_pat")
            else:
                yield from layer(f"{cross}.attn.r_latents", dim, dim)
            yield from layer(f"{cross}.attn.rv_patches", 2 * dim, dim)
            yield from layer(f"{cross}.attn.proj_lat", dim, dim)
            yield from mlp(f"{cross}.mlp_lat")
        yield from layer("fc_norm", dim)
        yield from layer("head", classes, dim)

    return dict(entries())


def pacavit(
    widths: Sequence[int] = (96, 192, 320, 384),
    depths: Sequence[int] = (2, 2, 4, 2),
    clusters: Sequence[int] = (100, 100, 100, 0),
    classes: int = 1000,
) -> Layout:
    def entries() -> Iterator[tuple[str, Shape]]:
        yield from layer("patch_embed.proj.0", widths[0] // 2, 3, 3, 3)
        yield from layer("patch_embed.proj.1", widths[0], widths[0] // 2, 3, 3)
        yield from layer("patch_embed.norm", widths[0])
        for stage, (dim, depth, count) in enumerate(zip(widths, depths, clusters, strict=True), start=1):
            if stage > 1:
                yield from layer(f"transition{stage - 1}.proj", dim, widths[stage - 2], 3, 3)
                yield from layer(f"transition{stage - 1}.norm", dim)
            for block in range(depth):
                key = f"stage{stage}.{block}"
                yield from layer(f"{key}.norm1_before", dim)
                yield from layer(f"{key}.norm2_before", dim)
                if count:
                    yield from layer(f"{key}.attn.cluster_norm", dim)
                if count and block == 0:
                    yield from layer(f"{key}.attn.clustering.clustering.0", dim, 1, 7, 7)
                    yield from layer(f"{key}.attn.clustering.clustering.2", dim, dim, 1, 1)
                    yield from layer(f"{key}.attn.clustering.clustering.4", count, dim, 1, 1, bias=False)
                for name in ("q", "k", "v", "proj"):
                    yield from layer(f"{key}.attn.{name}", dim, dim)
                yield from layer(f"{key}.mlp.fc1", 4 * dim, dim)
                yield from layer(f"{key}.mlp.fc2", dim, 4 * dim)
                yield from layer(f"{key}.mlp.dwconv.dwconv", 4 * dim, 1, 3, 3)
            yield from layer(f"norm{stage}", dim)
        yield from layer("head", classes, widths[-1])

    return dict(entries())


def debiformer(
    widths: Sequence[int] = (64, 128, 256, 512),
    pairs: Sequence[int] = (1, 1, 4, 1),
    kernels: Sequence[int] = (9, 7, 5, 3),
    sizes: Sequence[int] = (56, 28, 14, 7),
    classes: int = 1000,
) -> Layout:
    def mlp(key: str, dim: int) -> Iterator[tuple[str, Shape]]:
        yield from layer(f"{key}.linear1.0", 3 * dim, dim, 1, 1)
        yield from layer(f"{key}.linear2.0", dim, 3 * dim, 1, 1)
        yield from layer(f"{key}.dwc", 3 * dim, 1, 3, 3)

    def agents(key: str, dim: int, kernel: int, size: int) -> Iterator[tuple[str, Shape]]:
        group = min(dim, 64)
        yield f"{key}.rpe_table", (dim // 32, 2 * size - 1, 2 * size - 1)
        yield from layer(f"{key}.lepe1", dim, 1, 5, 5)
        yield from layer(f"{key}.qkv_conv.qkv", 3 * dim, dim, 1, 1)
        for name in ("proj_q", "proj_k", "proj_v", "proj_out", "unifyheads1"):
            yield from layer(f"{key}.{name}", dim, dim, 1, 1)
        yield from layer(f"{key}.conv_offset_q.0", group, 1, kernel, kernel, bias=False)
        yield from layer(f"{key}.conv_offset_q.1.norm", group)
        yield from layer(f"{key}.conv_offset_q.3", 1, group, 1, 1, bias=False)
        yield from layer(f"{key}.norm", dim)
        yield from layer(f"{key}.norm2", dim)
        yield from mlp(f"{key}.mlp", dim)

    def entries() -> Iterator[tuple[str, Shape]]:
        yield from _bi_shell(widths, classes)
        for stage, (dim, depth) in enumerate(zip(widths, pairs, strict=True)):
            for block in range(depth):
                key = f"stages.{stage}.{block}"
                for half in (1, 2):
                    yield from layer(f"{key}.pos_embed{half}", dim, 1, 3, 3)
                    yield from mlp(f"{key}.mlp{half}", dim)
                for norm in (1, 2, 3, 4):
                    yield from layer(f"{key}.norm{norm}", dim)
                if stage < 3:
                    yield from _routing(f"{key}.attn1", dim)
                else:
                    yield from agents(f"{key}.attn1", dim, kernels[stage], sizes[stage])
                yield from agents(f"{key}.attn2", dim, kernels[stage], sizes[stage])

    return dict(entries())
