"""What timm is told about a baseline: how its images are prepared, and the names of its first and last layers."""

from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD


def card(size: int = 224, pool: int | None = None, **facts: Any) -> dict[str, Any]:
    """timm's default cfg. No weights are listed: the published files are loaded by `prism.baselines.convert`."""
    return (
        dict(
            url="",
            num_classes=1000,
            input_size=(3, size, size),
            pool_size=None if pool is None else (pool, pool),
            crop_pct=0.875,
            interpolation="bicubic",
            mean=IMAGENET_DEFAULT_MEAN,
            std=IMAGENET_DEFAULT_STD,
            fixed_input_size=False,
        )
        | facts
    )
