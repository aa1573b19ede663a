"""The names under which timm knows PRISM, sized against PVTv2-B0, B1, B2, B3 (paper, section 3.5)."""

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model

from prism.model.backbone import Prism
from prism.model.metadata import read_metadata
from prism.model.weights import TAGS, shipped

VARIANTS: dict[str, dict[str, Any]] = {
    "prism_nano": dict(widths=(32, 64, 160, 256)),
    # the paper's; a step is repeated, so what is spent on the few slots costs less than what is spent on every token
    "prism_tiny": dict(widths=(64, 128, 320, 512), ffn_ratio=2.5, slot_ratio=6.0),
    "prism_small": dict(widths=(96, 192, 480, 768)),
    "prism_base": dict(widths=(128, 256, 640, 1024)),
}

NUM_CLASSES = 1000


def _cfgs(name: str) -> dict[str, dict[str, Any]]:
    """timm's cards of a variant: one for each tag of weights that the package carries for it, or one of none."""
    cfg: dict[str, Any] = dict(
        url="",
        num_classes=NUM_CLASSES,
        input_size=(3, 224, 224),
        pool_size=(7, 7),
        crop_pct=0.875,
        interpolation="bicubic",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        first_conv="stages.0.tokeniser.conv",
        classifier="head.fc",
        fixed_input_size=False,
        license="apache-2.0",
    )
    found = {}
    for tagged in (f"{name}.{tag}" for tag in TAGS):
        if file := shipped(tagged):
            metadata = read_metadata(file)
            size = metadata.preprocessing["size"]
            found[tagged] = cfg | dict(
                file=str(file),
                num_classes=len(metadata.classes or ()),
                input_size=(3, size, size),
                pool_size=(-(-size // 32), -(-size // 32)),
            )
    return found or {f"{name}.untrained": cfg}


default_cfgs = generate_default_cfgs({tagged: cfg for name in VARIANTS for tagged, cfg in _cfgs(name).items()})


def _create(name: str, pretrained: bool, kwargs: dict[str, Any]) -> Prism:
    """Weights that the package carries come with the arguments they were trained with; others say theirs."""
    tag = kwargs.get("pretrained_cfg")  # timm passes on what stands behind the dot, or what a folder says
    carried = None if isinstance(tag, dict) else shipped(f"{name}.{tag}" if isinstance(tag, str) and tag else name)
    if pretrained and (file := carried):
        kwargs = {**read_metadata(file).network, **kwargs}
    elif not pretrained:
        kwargs.setdefault("num_classes", NUM_CLASSES)
    return build_model_with_cfg(
        Prism,
        name,
        pretrained,
        feature_cfg=dict(out_indices=(0, 1, 2, 3), feature_cls="getter"),
        **{**VARIANTS[name], **kwargs},
    )


@register_model
def prism_nano(pretrained: bool = False, **kwargs: Any) -> Prism:
    """For small images and two cores."""
    return _create("prism_nano", pretrained, kwargs)


@register_model
def prism_tiny(pretrained: bool = False, **kwargs: Any) -> Prism:
    """The paper's model."""
    return _create("prism_tiny", pretrained, kwargs)


@register_model
def prism_small(pretrained: bool = False, **kwargs: Any) -> Prism:
    return _create("prism_small", pretrained, kwargs)


@register_model
def prism_base(pretrained: bool = False, **kwargs: Any) -> Prism:
    return _create("prism_base", pretrained, kwargs)
