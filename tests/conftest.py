import os

import pytest
import torch

import prism  # noqa: F401  registers the models with timm

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
