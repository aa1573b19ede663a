"""Weights, gradients and moments shared among processes (FSDP 2)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from prism.model.stage import Features, Stage, StageTrace


def shard(network: nn.Module, accelerator: Accelerator) -> None:
    """Share a network among all processes, in place: each stage of a PRISM by itself, then the rest.

    A stage and not a step, since images of different processes take different numbers of steps.
    """
    if accelerator.num_processes < 2:
        raise ValueError("--shard needs several processes: start them with torchrun or accelerate launch")
    network.to(accelerator.device)
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for stage in [module for module in network.modules() if isinstance(module, Stage)]:
        stage.register_forward_hook(_reach_all)  # before the hook that takes the weights away again
        fully_shard(stage, mesh=mesh)
    fully_shard(network, mesh=mesh)
    if hasattr(network, "forward_traced"):  # which learners call instead of forward
        register_fsdp_forward_method(network, "forward_traced")


@contextmanager
def gathered(network: nn.Module) -> Iterator[None]:
    """All weights in every process: evaluated, one may see more batches than another."""
    parts = [module for module in network.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(part is not network, recurse=False)
            part.reshard()


def whole(value: Tensor) -> Tensor:
    """All of what may be this process's share."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _reach_all(stage: nn.Module, _: Any, given: tuple[Features, StageTrace | None]) -> Any:
    """Let gradients, if only of 0, reach all weights of a stage: processes exchange those that have one, and slots that
    never move on leave their FFN without in one process but not in another."""
    if not stage.training:
        return given
    features, trace = given
    nothing = sum(parameter.sum() * 0 for parameter in stage.parameters())
    return features._replace(maps=features.maps + nothing), trace
