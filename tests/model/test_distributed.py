"""Two ranks with half a batch each end a step with the codebook of one rank with the whole."""

import socket
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from tests.model.small import random_images, small_prism

STEPS, BATCH = 4, 8


def train(rank: int, ranks: int) -> tuple[dict[str, torch.Tensor], list[int]]:
    """A few optimiser steps on this rank's part of the batch; the weights, and the steps its images took."""
    torch.manual_seed(0)
    model = small_prism(torch.float64, codes=24, code_decay=0.5).train()
    wrapped = DistributedDataParallel(Traced(model), find_unused_parameters=True) if ranks > 1 else Traced(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    taken = []
    for step in range(STEPS):
        torch.manual_seed(step)
        images = random_images(BATCH, dtype=torch.float64)
        images[: BATCH // 2] = images[: BATCH // 2] * 0.01 + 2  # flat images on rank 0: they halt together
        logits, loss, steps = wrapped(images.chunk(ranks)[rank])
        taken.append(max(steps))
        optimiser.zero_grad()
        (logits.square().mean() + loss).backward()
        optimiser.step()
        model.update()
    return model.state_dict(), taken


class Traced(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        logits, trace = self.model.forward_traced(images)
        return logits, trace.loss(), [int(stage.steps.sum()) for stage in trace.stages]


def worker(rank: int, ranks: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    try:
        torch.save(train(rank, ranks), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


def test_two_ranks_equal_one(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, (2, port, str(tmp_path)), nprocs=2)
    (first, steps_first), (second, steps_second) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert steps_first != steps_second  # the ranks halt at different steps
    whole, _ = train(0, 1)
    moved = [key for key in whole if key.endswith("codebook.codes")]
    assert len(moved) == 4
    for key, value in whole.items():
        torch.testing.assert_close(first[key], value, rtol=0, atol=1e-10, msg=key)
        torch.testing.assert_close(second[key], value, rtol=0, atol=1e-10, msg=key)
    assert whole["stages.0.step.memory.codebook.updates"] == STEPS
