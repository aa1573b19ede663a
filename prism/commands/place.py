"""Where a command runs: its process among those of a launcher, and its device."""

import torch
from accelerate import PartialState

from prism.tasks.task import Place


def find_place(device: str, batch: int | None = None, workers: int = 2) -> Place:
    processes = PartialState(cpu=device == "cpu" or not torch.accelerator.is_available())
    device = str(processes.device) if device == "auto" else device
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return Place(batch, workers, device, processes)
