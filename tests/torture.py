"""`make torture`: trainings of all tasks are killed again and again, and must end as undisturbed ones do, bit for bit.

A training is a process forked from this one, which has imported everything, so that a life takes seconds. It is killed
at a random moment, every third time while a checkpoint is being written, and started again until it is through. Then
its weights, optimiser, sums, log and report are compared with those of a training that nobody disturbed.
"""

import argparse
import csv
import os
import random
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from prism.tasks.detection.recipes import scenes_retinanet
from prism.tasks.recipe import Recipe
from prism.tasks.segmentation.recipes import scenes_semfpn
from prism.training import checkpoint
from prism.training.log import read_log
from prism.training.run import train_recipe
from tests.training.small import NETWORK, small_recipe

COMMON: dict[str, Any] = dict(
    length=32, batch=8, accumulate=2, average=0.8, epochs=3, workers=2, save_every=1, keep=2, log_every=3, limit=4
)
NOBODY = 65534
PATIENCE = 600.0  # seconds after which a training that does not end is a failure


def recipes() -> dict[str, Recipe]:
    detection = replace(scenes_retinanet(), sizes=(64,), longest=64, width=16, norm=False, network=NETWORK)
    segmentation = replace(scenes_semfpn(), size=32, width=16, network=NETWORK)
    return {
        "classification": small_recipe(Path("run"), **COMMON),
        "detection": replace(detection, **COMMON),
        "segmentation": replace(segmentation, **COMMON),
    }


class Training:
    """One life of a training, in as many processes as it has ranks; `before` is called in each of them."""

    def __init__(self, recipe: Recipe, ranks: int, said: Path, before: Callable[[], object] = lambda: None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.processes = [_fork(recipe, rank, ranks, port, said, before) for rank in range(ranks)]

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> list[int] | None:
        """Exit codes if it ends within so long, None if it goes on, or once `until` is true."""
        deadline, ended = time.monotonic() + seconds, {}
        while time.monotonic() < deadline and not until():
            for process in self.processes:
                if process not in ended and (found := os.waitpid(process, os.WNOHANG))[0]:
                    ended[process] = os.waitstatus_to_exitcode(found[1])
            if len(ended) == len(self.processes) or any(ended.values()):
                self.kill()  # what waits for the one that failed
                return list(ended.values())
            time.sleep(0.0005)
        return None

    def kill(self) -> None:
        """With all readers of images."""
        for process in random.sample(self.processes, len(self.processes)):
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        for process in self.processes:
            with suppress(ChildProcessError):
                os.waitpid(process, 0)


def _fork(recipe: Recipe, rank: int, ranks: int, port: int, said: Path, before: Callable[[], object]) -> int:
    if process := os.fork():
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(process, process)
        return process
    code = 3
    try:
        os.setpgid(0, 0)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        torch.set_num_threads(1)
        if ranks > 1:
            os.environ |= dict(RANK=f"{rank}", LOCAL_RANK=f"{rank}", WORLD_SIZE=f"{ranks}", LOCAL_WORLD_SIZE=f"{ranks}")
            os.environ |= dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=f"{port}")
        before()
        train_recipe(recipe)
        code = 0
    except (ValueError, OSError) as error:
        print(f"prism: {error}", flush=True)
        code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def left_by(out: Path) -> dict[str, Any]:
    """All that a training leaves, but for what a clock said."""
    state = checkpoint.read(checkpoint.saved(out / "checkpoints")[-1])
    return {
        **{name: load_file(out / name) for name in ("last.safetensors", "best.safetensors")},
        **{name: state[name] for name in ("step", "learner", "optimiser", "average", "tallies", "skipped")},
        "log": [{k: v for k, v in row.items() if k != "images/s"} for row in read_log(out / "log.jsonl")],
        **{name: (out / name).read_text() for name in ("epochs.csv", "report.html")},
    }


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two trees of values differ in a bit."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from differences(one[name], other[name], f"{place} {name}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{place} {number}")
    elif isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or not torch.equal(one, other):
            yield place
    elif one != other:
        yield place


class Torture:
    """Of one task in so many processes."""

    def __init__(self, recipe: Recipe, ranks: int, folder: Path, chance: random.Random):
        self.recipe, self.ranks, self.folder, self.chance = recipe, ranks, folder, chance
        self.kills = self.writing = self.runs = 0
        self.failures: list[str] = []
        start = time.monotonic()
        self.expected = self._finished(folder / "undisturbed" / "run")
        self.seconds = time.monotonic() - start

    def _life(self, out: Path, before: Callable[[], object] = lambda: None) -> Training:
        return Training(replace(self.recipe, out=out), self.ranks, self.folder / "said.txt", before)

    def _finished(self, out: Path) -> dict[str, Any]:
        codes = self._life(out).wait(PATIENCE)
        if codes is None or any(codes):
            raise RuntimeError(f"a training ended with {codes}: {(self.folder / 'said.txt').read_text()[-2000:]}")
        return left_by(out)

    def compare(self, out: Path) -> None:
        self.runs += 1
        self.failures += [f"{out}:{place}" for place in differences(self.expected, self._finished(out))]
        shutil.rmtree(out.parent)

    def kill(self, times: int) -> None:
        """One run after the other, until so many kills; every run to its end."""
        while self.kills < times:
            out = self.folder / f"killed-{self.runs}" / "run"
            alive = True
            while alive and self.kills < times:
                alive = self._killed(out)
            self.compare(out)

    def _killed(self, out: Path) -> bool:
        """Whether it lived long enough to be killed."""
        left = _unfinished(out)  # by an earlier kill
        training = self._life(out)
        aimed = self.kills % 3 == 2
        wait = self.seconds if aimed else self.chance.uniform(0, 0.6 * self.seconds)
        codes = training.wait(wait, (lambda: bool(_unfinished(out) - left)) if aimed else lambda: False)
        if codes is not None:
            if any(codes):
                self.failures.append(f"{out} ended with {codes}")
            return False
        training.kill()
        self.kills += 1
        self.writing += bool(_unfinished(out) - left)
        return True

    def refuse(self, name: str, before: Callable[[Path], object], after: Callable[[Path], object]) -> str:
        """A run that cannot write must say so in a sentence; what it says. Then it is let go on."""
        out = self.folder / name / "run"
        training = self._life(out)
        training.wait(PATIENCE, lambda: len(checkpoint.saved(out / "checkpoints")) > 1)
        training.kill()
        said = self.folder / "said.txt"
        said.write_text("")
        codes = self._life(out, lambda: before(out)).wait(PATIENCE)
        after(out)
        lines = [line for line in said.read_text().splitlines() if line.startswith("prism: ")]
        if codes != [1] or "Traceback" in said.read_text() or not lines:
            self.failures.append(f"{name}: ended with {codes}, said {said.read_text()[-500:]}")
        self.compare(out)
        return lines[0].removeprefix("prism: ").replace(str(out), "OUT") if lines else ""


def _unfinished(out: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written, or were when somebody was killed."""
    found = set()
    for path in (out / "checkpoints").glob(".*.partial"):
        with suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_mtime_ns))
    return found


def _small_files(_: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))


def _as_nobody(out: Path) -> None:
    """The superuser may write everywhere."""
    _allow(out, 0o555)
    if os.geteuid() == 0:
        os.environ["HOME"] = "/nonexistent"
        os.seteuid(NOBODY)


def _allow(out: Path, mode: int) -> None:
    for folder in (out.parent, out, *(path for path in out.rglob("*") if path.is_dir())):
        folder.chmod(mode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="over all tasks, in one process and in two")
    parser.add_argument("--folder", type=Path, default=Path("runs/torture"))
    parser.add_argument("--out", type=Path, default=Path("results/reliability"))
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    chance, rows, failures = random.Random(0), [], []
    configurations = [(task, recipe, ranks) for task, recipe in recipes().items() for ranks in (1, 2)]
    for number, (task, recipe, ranks) in enumerate(configurations, start=1):
        folder = options.folder / f"{task}-{ranks}"
        folder.mkdir(parents=True)
        start = time.monotonic()
        torture = Torture(recipe, ranks, folder, chance)
        torture.kill(
            options.kills * number // len(configurations) - options.kills * (number - 1) // len(configurations)
        )
        said = {"full disk": "", "read-only folder": ""}
        if ranks == 1:
            said["full disk"] = torture.refuse("full", _small_files, lambda _: None)
            said["read-only folder"] = torture.refuse("closed", _as_nobody, lambda out: _allow(out, 0o755))
        row = {"task": task, "processes": ranks, "kills": torture.kills, "while writing": torture.writing}
        row |= {"runs compared": torture.runs, "that differ": len(torture.failures), **said}
        rows.append(row | {"seconds": round(time.monotonic() - start)})
        failures += torture.failures
        print(rows[-1], *torture.failures, sep="\n", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "torture.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    sys.exit(f"{len(failures)} failures" if failures else 0)


if __name__ == "__main__":
    main()
