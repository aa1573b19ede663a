"""What the shipped weights say to scenes with parts hidden does not change unless the weights or the masks do."""

import json
from pathlib import Path

import timm
import torch

from prism import Prism
from prism.data.scenes import Scenes
from prism.occlusion import PAPER_SETTINGS, OcclusionBenchmark, Subject

GOLDEN = Path(__file__).parent / "golden.json"


class TwentyScenes:
    def __init__(self) -> None:
        self.scenes = Scenes("val", 20, 64)

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        scene = self.scenes.scene(index)
        return torch.from_numpy(scene.image).permute(2, 0, 1) / 255, scene.label


def found() -> dict[str, dict[str, list]]:
    model = timm.create_model("prism_nano", pretrained=True)
    assert isinstance(model, Prism)
    benchmark = OcclusionBenchmark(TwentyScenes(), PAPER_SETTINGS, fills=("mean", "noise"), batch=8)
    _, predictions = benchmark.run([Subject("prism_nano", "shipped", model)])
    return {
        f"{setting} {fill}": {"rank": said.rank.tolist(), "steps": said.steps.tolist()}
        for (_, _, setting, fill, _), said in predictions.items()
    }


def test_shipped_weights_say_what_they_said():
    assert found() == json.loads(GOLDEN.read_text())


if __name__ == "__main__":  # after a change of weights on purpose
    GOLDEN.write_text(json.dumps(found(), indent=None, separators=(",", ":")) + "\n")
