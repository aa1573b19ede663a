"""Two processes with half a batch each train as one process with the whole."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import torch
import torch.multiprocessing as mp

from prism.tasks.classification.task import TASK
from prism.training import checkpoint, loop
from tests.training.small import small_recipe

STEPS = 20


def train(out: Path, dtype: torch.dtype) -> None:
    recipe = small_recipe(out, steps=STEPS, length=160, clip=1.0, weight_decay=0.05)
    accelerator = loop.start(recipe)
    job = TASK.job(recipe, accelerator)
    job.learner.to(dtype)
    view = job.stream.view  # pyright: ignore

    def widened(picture, label):
        pixels, label = view(picture, label)
        return pixels.to(dtype), label

    job.stream.view = widened  # pyright: ignore
    loop.train(replace(job, evaluate=lambda *_: {"val top-1": 0.0}), recipe, accelerator)
    accelerator.end_training()


def worker(rank: int, ranks: int, port: int, out: str, dtype: torch.dtype) -> None:
    torch.set_num_threads(1)
    os.environ |= dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    os.environ |= dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    train(Path(out), dtype)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(checkpoint.saved(out / "checkpoints")[-1])["learner"]


def test_two_ranks_equal_one(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, (2, port, str(tmp_path / "two"), torch.float64), nprocs=2)
    train(tmp_path / "one", torch.float64)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    codes = [key for key in one if key.endswith("codebook.codes")]
    assert len(codes) == 4
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, rtol=0, atol=1e-8, msg=key)
    assert one["network.stages.0.step.memory.codebook.updates"] == STEPS
