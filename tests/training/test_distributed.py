"""Two processes with half a batch each train as one process with the whole: every task, sharded or not."""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from prism.data.label_maps import VOID
from prism.tasks.detection.recipes import scenes_retinanet
from prism.tasks.recipe import Recipe
from prism.tasks.registry import find_task
from prism.tasks.segmentation.recipes import scenes_semfpn
from prism.training import checkpoint, loop
from tests.training.small import NETWORK, small_recipe

STEPS = 10
COMMON: dict[str, Any] = dict(steps=STEPS, length=40, batch=8, clip=1.0, weight_decay=0.05, limit=1, workers=0)


def recipes(out: Path) -> list[Recipe]:
    detection = replace(scenes_retinanet(), sizes=(64,), longest=64, width=16, norm=False, warmup=0.0)
    regions = replace(detection, head="maskrcnn", proposals=30, regions=8, width=8)
    segmentation = replace(scenes_semfpn(), size=32, width=16, warmup=0.0)
    return [
        small_recipe(out / "classification", **COMMON),
        replace(detection, out=out / "detection", network=NETWORK, **COMMON),
        replace(regions, out=out / "maskrcnn", network=NETWORK, **COMMON | dict(batch=4, length=20)),
        replace(segmentation, out=out / "segmentation", network=NETWORK, **COMMON),
    ]


def train(recipe: Recipe) -> None:
    """In float64, without an evaluation; of label maps a part is void, more of it in one half of a batch."""
    accelerator = loop.start(recipe)
    job = find_task(recipe.task).job(recipe, accelerator)
    job.learner.double()
    job.stream.transform = partial(_wide, job.stream.transform, recipe.task)  # pyright: ignore

    def evaluate(network: torch.nn.Module, *_: Any) -> dict[str, float]:
        if recipe.task == "classification" and accelerator.is_main_process:
            with torch.inference_mode():
                network(torch.zeros(1, 3, 32, 32).double())  # which nobody else does
        return {job.best: 0.0}

    loop.train(replace(job, evaluate=evaluate), recipe, accelerator)


def _wide(view: Callable[..., Any], task: str, image: Any, target: Any) -> tuple[Any, Any]:
    pixels, target = view(image, target)
    if task == "segmentation":
        target = target.clone()
        target[: int(torch.randint(len(target), ()))] = VOID
    return pixels.double(), target


def worker(rank: int, ranks: int, port: int, out: str, sharded: bool) -> None:
    torch.set_num_threads(1)
    os.environ |= dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    os.environ |= dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    for recipe in recipes(Path(out)):
        train(replace(recipe, shard=sharded))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one")
    for recipe in recipes(out):
        train(recipe)
    return out


@pytest.mark.parametrize("sharded", [False, True], ids=["replicated", "sharded"])
def test_two_ranks_equal_one(tmp_path: Path, one: Path, sharded: bool):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, (2, port, str(tmp_path), sharded), nprocs=2)
    for task in ("classification", "detection", "maskrcnn", "segmentation"):
        expected, found = (checkpoint.read(checkpoint.saved(out / task / "checkpoints")[-1]) for out in (one, tmp_path))
        assert found["step"] == expected["step"] == STEPS
        codes = [key for key in expected["learner"] if key.endswith("codebook.codes")]
        assert len(codes) == 4
        assert found["learner"].keys() == expected["learner"].keys()
        for key, value in expected["learner"].items():
            torch.testing.assert_close(found["learner"][key], value, rtol=0, atol=1e-8, msg=f"{task} {key}")
        for key, value in expected["optimiser"]["state"].items():
            torch.testing.assert_close(found["optimiser"]["state"][key], value, rtol=0, atol=1e-8)
        updates = next(value for key, value in expected["learner"].items() if key.endswith("codebook.updates"))
        assert updates == STEPS
