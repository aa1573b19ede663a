"""Networks that a playground opens in a moment: untrained, but with opinions."""

import json
import sys
from pathlib import Path

import timm
import torch

from prism.app.networks import open_players
from prism.app.samples import samples
from prism.app.server import Playground, serve
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
    with torch.no_grad():
        model.get_parameter("fc.weight").mul_(50)  # likewise
    export(model.state_dict(), path, {"model": "test_resnet"} | ABOUT | (about or {}))
    return path


def sets(place: Path) -> list[Playground]:
    """Two, as the package has them: one that knows scenes, and one that does not."""
    scenes = open_players(save_prism(place / "a.safetensors"), save_baseline(place / "b.safetensors"))
    names = {"classes": json.dumps([f"n{number}" for number in range(len(SHAPES))])}
    others = open_players(save_prism(place / "c.safetensors", names), save_baseline(place / "d.safetensors", names))
    return [Playground(name, own, samples(own, None), None) for name, own in (("Scenes", scenes), ("Others", others))]


if __name__ == "__main__":
    serve(sets(Path(sys.argv[1])), "127.0.0.1", int(sys.argv[2]))
