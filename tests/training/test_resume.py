"""A run that is killed and resumed ends as one that was not, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from prism.training import checkpoint
from prism.training.log import read_log
from tests.training.small import RESUMED

STEPS = RESUMED["epochs"] * RESUMED["length"] // 8


def start(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.small", str(out)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def step_reached(out: Path) -> int:
    kept = checkpoint.saved(out / "checkpoints")
    return int(kept[-1].stem.removeprefix("step-")) if kept else 0


def test_killed_at_three_random_points_ends_the_same(tmp_path: Path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = start(whole)
    _, complaint = undisturbed.communicate(timeout=300)
    assert undisturbed.returncode == 0, complaint
    points = sorted(random.sample(range(2, STEPS - 1), 3))
    for point in points:
        process = start(killed)
        deadline = time.monotonic() + 300
        while step_reached(killed) < point and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05 * random.random())  # anywhere in a step, in a write, or in an evaluation
        assert process.poll() is None, "the run was over before it could be killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    last = start(killed)
    _, complaint = last.communicate(timeout=300)
    assert last.returncode == 0, complaint
    for name in ("last.safetensors", "best.safetensors"):
        one, other = load_file(whole / name), load_file(killed / name)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), f"{name} differs, killed at {points}"
    one, other = (checkpoint.read(checkpoint.saved(out / "checkpoints")[-1]) for out in (whole, killed))
    assert one["step"] == other["step"] == STEPS
    for key, value in one["optimiser"]["state"].items():
        assert all(torch.equal(value[name], other["optimiser"]["state"][key][name]) for name in value)
    assert figures(whole) == figures(killed)


def figures(out: Path) -> list[dict]:
    """The log without what a clock said."""
    return [{k: v for k, v in row.items() if k != "images/s"} for row in read_log(out / "log.jsonl")]
