from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from prism.data.images import read_image, unit_pixels
from prism.data.scenes import Scenes
from prism.data.stream import Batch, ShuffledStream
from prism.model.creation import Checkpoint
from prism.model.metadata import Metadata
from prism.model.weights import load_weights
from prism.occlusion.hiding import Occluded
from prism.occlusion.settings import CLEAN, PAPER_SETTINGS, jobs
from prism.reporting.pages import Section
from prism.reporting.tables import Row, Tables
from prism.tasks.learner import Learner, Outcome
from prism.tasks.task import Conditions, Job, Progress, Task, ranks_of
from tests.extensions.brightness.recipes import Brightness


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.scale(images.mean((1, 2, 3))[:, None])[:, 0]


class Squares(Learner):
    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, targets: Tensor) -> Outcome:
        return Outcome({"squares": (self.network(images) - targets).square().mean()}, {})


class BrightScenes:
    def __init__(self, split: str, length: int, size: int):
        self.scenes = Scenes(split, length, size)

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, index: int) -> tuple[Tensor, float]:
        image = unit_pixels(self.scenes[index][0])
        return image, float(image.mean())

    def name(self, index: int) -> str:
        return self.scenes.name(index)


class BrightnessTask(Task):
    name = "brightness"
    models = "brightness meters"
    headline = "error"
    title = "Brightness under occlusion"
    settings = curves = PAPER_SETTINGS[:2]

    def learner(self, recipe: Brightness, classes: Sequence[str]) -> Squares:
        torch.manual_seed(recipe.seed)
        return Squares(Network())

    def job(self, recipe: Brightness, accelerator: Accelerator) -> Job:
        data = BrightScenes("train", recipe.length or 16, recipe.size)
        stream = ShuffledStream(data, lambda *pair: pair, recipe.batch, recipe.seed, ranks_of(accelerator))
        metadata = Metadata(model="brightness", task=self.name, preprocessing={"size": recipe.size})
        shown = BrightScenes("val", 4, recipe.size)
        return Job("brightness", self.learner(recipe, []), stream, lambda n, _: {"val error": _error(n, shown)},
                   "val error", metadata)  # fmt: skip

    def random_batch(self, recipe: Brightness, classes: int) -> Batch:
        return Batch(torch.rand(2, 3, recipe.size, recipe.size), torch.rand(2), ["noise"] * 2, [])

    def cost(self, recipe: Brightness, classes: int) -> str:
        return "next to nothing"

    def open_data(
        self, checkpoints: Sequence[Checkpoint], data: str, splits: Sequence[str], limit: int | None, options: Any
    ) -> Mapping[str, BrightScenes]:
        return {split: BrightScenes(split, limit or 8, checkpoints[0].size or 32) for split in splits}

    def subjects(self, checkpoints: Sequence[Checkpoint], images: Any, options: Any) -> list[Network]:
        found = []
        for checkpoint in checkpoints:
            assert checkpoint.file is not None
            found.append(Network().eval())
            load_weights(found[-1], checkpoint.file)
        return found

    def evaluate(
        self, subjects: Sequence[Network], splits: Mapping[str, Any], conditions: Conditions, progress: Progress
    ) -> list[Row]:
        return [{"split": split, "error": _error(n, images)} for n in subjects for split, images in splits.items()]

    def predict(self, checkpoint: Checkpoint, images: Sequence[Path], out: Path, **options: Any) -> list[Row]:
        [network] = self.subjects([checkpoint], None, None)
        shown = [unit_pixels(read_image(path))[None] for path in images]
        return [{"image": str(p), "brightness": float(network(i))} for p, i in zip(images, shown, strict=True)]

    def occlusion(
        self, subjects: Sequence[Any], images: Any, conditions: Conditions, out: Path, options: Any, progress: Progress
    ) -> Tables:
        hidden = jobs(conditions.settings, conditions.fills, conditions.seeds)
        every = [(job, Occluded(images, *job)) for job in hidden]
        return {"brightness": [{**job.columns, "error": _error(n, shown)} for n in subjects for job, shown in every]}

    def report(self, tables: Tables, out: Path) -> list[Section]:
        assert tables["brightness"][0]["setting"] == CLEAN.name
        return [Section("Brightness", "Mean error.", tables["brightness"])]


@torch.no_grad()
def _error(network: nn.Module, images: Any) -> float:
    pairs = [images[index] for index in range(len(images))]
    return float(sum(abs(float(network(image[None])) - truth) for image, truth in pairs)) / len(pairs)


TASK = BrightnessTask()
