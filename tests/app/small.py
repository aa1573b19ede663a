"""Networks that a playground opens in a moment: untrained, but with opinions."""

import json
from pathlib import Path

import timm
import torch

from prism.data.scenes import SHAPES
from prism.training.checkpoint import export

SIZE = 32
NETWORK = "widths=(8,12,16,24) slots=(5,4,4,3) codes=16 max_steps=3"
ABOUT = {"classes": json.dumps(list(SHAPES)), "size": str(SIZE)}


def save_prism(path: Path, about: dict[str, str] | None = None, network: str = NETWORK) -> Path:
    torch.manual_seed(1)
    model = timm.create_model(
        "prism_nano", num_classes=len(SHAPES), widths=(8, 12, 16, 24), slots=(5, 4, 4, 3), codes=16, max_steps=3
    )
    with torch.no_grad():
        model.get_parameter("head.fc.weight").mul_(50)  # else every class is as likely as the others
    export(model.state_dict(), path, {"model": "prism_nano", "network": network} | ABOUT | (about or {}))
    return path


def save_baseline(path: Path, about: dict[str, str] | None = None) -> Path:
    torch.manual_seed(2)
    model = timm.create_model("test_resnet", num_classes=len(SHAPES))
    export(model.state_dict(), path, {"model": "test_resnet"} | ABOUT | (about or {}))
    return path
