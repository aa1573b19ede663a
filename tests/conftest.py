import os
import shutil

import pytest
import torch

import prism  # noqa: F401  registers the models with timm
from tests.skips import pytest_addoption, pytest_sessionfinish  # noqa: F401

THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


@pytest.fixture(autouse=True)
def _alike() -> None:
    """Whatever ran before: `prism speed` takes all cores, and two workers would then fight for them."""
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
