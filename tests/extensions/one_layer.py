"""A toy baseline behind timm's contract."""

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

default_cfgs = generate_default_cfgs({"one_layer.untrained": dict(input_size=(3, 224, 224), classifier="head")})


class OneLayer(nn.Module):
    def __init__(self, num_classes: int = 1000, **_: Any):
        super().__init__()
        self.num_classes = num_classes
        self.head = nn.Linear(3, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.mean((2, 3)))


@register_model
def one_layer(pretrained: bool = False, **kwargs: Any) -> OneLayer:
    return build_model_with_cfg(OneLayer, "one_layer", pretrained, **kwargs)
