"""What timm is told about a baseline: its variants, how images are prepared, the names of its first and last layers."""

import sys
from collections.abc import Mapping
from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn


def register(
    kind: type[nn.Module],
    variants: Mapping[str, Mapping[str, Any]],
    out_indices: int | tuple[int, ...] = (0, 1, 2, 3),
    pooled: bool = True,
    **facts: Any,
) -> None:
    """Each variant as a timm model of its name: `kind` with these arguments.

    No weights are listed: the published files are loaded by `prism.baselines.convert`. A nano variant is sized against
    `prism_nano`, for images of 112 px.
    """
    module: Any = sys.modules[kind.__module__]
    module.default_cfgs = generate_default_cfgs({f"{name}.untrained": _card(name, pooled, facts) for name in variants})

    def entry(name: str) -> Any:
        def create(pretrained: bool = False, **kwargs: Any) -> nn.Module:
            features, arguments = dict(out_indices=out_indices, feature_cls="getter"), {**variants[name], **kwargs}
            return build_model_with_cfg(kind, name, pretrained, feature_cfg=features, **arguments)

        create.__name__, create.__module__ = name, kind.__module__
        return create

    for name in variants:
        setattr(module, name, register_model(entry(name)))


def _card(name: str, pooled: bool, facts: Mapping[str, Any]) -> dict[str, Any]:
    """timm's default cfg."""
    size, pool = (112, 4) if name.endswith("nano") else (224, 7)
    return dict(
        url="",
        num_classes=1000,
        input_size=(3, size, size),
        pool_size=(pool, pool) if pooled else None,
        crop_pct=0.875,
        interpolation="bicubic",
        mean=IMAGENET_DEFAULT_MEAN,
        std=IMAGENET_DEFAULT_STD,
        fixed_input_size=False,
    ) | dict(facts)
