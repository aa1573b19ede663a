"""Two processes that share the pictures find what one finds, to the last bit."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from accelerate import PartialState
from PIL import Image

from prism.cli import main
from prism.data.pictures import PictureFolder
from prism.occlusion import OcclusionBenchmark, Setting, Subject
from tests.model.small import small_prism

SETTINGS = (Setting("clean"), Setting("PatchMask", 0.6))


def command(folder: Path, out: Path) -> list[str]:
    return ["occlusion", "prism_nano", "resnet10t", "--data", str(folder / "data"), "--size", "32", "--batch", "2",
            "--workers", "0", "--device", "cpu", "--out", str(out)]  # fmt: skip


def rows_of_one_batch(folder: Path, processes: PartialState | None) -> list[dict[str, Any]]:
    """A batch of all pictures: the second process has none."""
    torch.manual_seed(0)
    subject = Subject("prism", "a", small_prism(num_classes=3))
    pictures = PictureFolder(folder / "data", size=32)
    return OcclusionBenchmark(pictures, SETTINGS, processes=processes).run([subject])[0]


def worker(rank: int, port: int, folder: Path) -> None:
    """As a launcher would start it. Each process has a folder of its own, as on machines that share no disk."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    (folder / f"rows {rank}").write_text(json.dumps(rows_of_one_batch(folder, PartialState(cpu=True))))
    with (folder / f"said {rank}").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        main(command(folder, folder / f"rank {rank}"))


@pytest.fixture
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
def test_two_processes_equal_one(tmp_path: Path):
    random = np.random.default_rng(0)
    for number in range(7):
        path = tmp_path / "data" / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (40, 40, 3), np.uint8)).save(path)
    main(command(tmp_path, tmp_path / "alone"))
    shutil.copytree(tmp_path / "alone" / "predictions", tmp_path / "rank 0" / "predictions")
    for name in ("clean-mean-0", "OnlyOne112-mean-0"):  # the others are kept, on the first process's disk alone
        (tmp_path / "rank 0" / "predictions" / f"{name}.npz").unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, (port, tmp_path), nprocs=2)
    for name in ("occlusion.csv", "table.csv", "significance.csv"):
        assert (tmp_path / "rank 0" / name).read_text() == (tmp_path / "alone" / name).read_text()
    for path in (tmp_path / "alone" / "predictions").iterdir():
        with np.load(path) as alone, np.load(tmp_path / "rank 0" / "predictions" / path.name) as shared:
            assert set(alone) == set(shared)
            for name in alone:
                np.testing.assert_array_equal(shared[name], alone[name])
    assert "report.html" in (tmp_path / "said 0").read_text()
    assert (tmp_path / "said 1").read_text() == ""
    assert not (tmp_path / "rank 1").exists()
    for rank in range(2):
        assert json.loads((tmp_path / f"rows {rank}").read_text()) == rows_of_one_batch(tmp_path, None)
