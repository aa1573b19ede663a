"""What a kill, a full disk, a damaged file or a second process leaves behind is what an undisturbed run would have."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from prism.data.images import Unreadable
from prism.tasks.classification.task import TASK
from prism.training import checkpoint, lock, loop
from prism.training.log import Log, read_log
from tests.training.small import small_recipe


class Killed(BaseException):
    pass


class FirstIsBroken:
    """Samples of which the first cannot be read."""

    def __init__(self, samples: Any):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            raise Unreadable("the first cannot be read as an image")
        return self.samples[index]

    def name(self, index: int) -> str:
        return self.samples.name(index)


def train(out: Path, **changes: Any) -> list[dict[str, Any]]:
    """Three epochs of two steps, evaluated by nobody; the rows of the log but for what a clock said."""
    recipe = small_recipe(out, length=16, epochs=3, log_every=1, **changes)
    accelerator = loop.start(recipe)
    job = TASK.job(recipe, accelerator)
    job.stream.samples = FirstIsBroken(job.stream.samples)  # pyright: ignore
    loop.train(replace(job, evaluate=lambda *_: {"val top-1": 1.0}), recipe, accelerator)
    return [{k: v for k, v in row.items() if k != "images/s"} for row in read_log(out / "log.jsonl")]


@contextmanager
def killed_before(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, when: Callable[..., bool]) -> Iterator[None]:
    """The first call of a function for which `when` holds ends the run."""
    whole = getattr(target, name)

    def cut(*arguments: Any, **named: Any) -> Any:
        if when(*arguments):
            raise Killed
        return whole(*arguments, **named)

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(target, name, cut)
        yield


def test_rows_are_those_of_an_undisturbed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = train(tmp_path / "whole")
    assert [row["skipped"] for row in expected if row["kind"] == "epoch"] == [1, 1, 1]
    for number, (target, name, when) in enumerate(
        [
            (loop._Run, "_take_step", lambda run, *_: run.step == 2),  # after an epoch's row, before a checkpoint
            (Log, "row", lambda _, kind, step, __: (kind, step) == ("epoch", 4)),  # after its skipped images
        ]
    ):
        out = tmp_path / str(number)
        with killed_before(monkeypatch, target, name, when):
            train(out)
        assert train(out) == expected


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    train(out, average=0.5)
    return out


def drop_half(state: dict[str, Any]) -> None:
    for name in [*state][::2]:
        del state[name]


def to_int8(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to(torch.int8) for name, value in weights.items()}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda state: state["learner"].clear(), "the learner has no "),
        (lambda state: drop_half(state["learner"]), "the learner has no "),
        (lambda state: state["average"].clear(), "the average has no "),
        (lambda state: state["optimiser"].update(state={}), "the optimiser has nothing of "),
        (lambda state: drop_half(state["optimiser"]["state"]), "the optimiser has nothing of "),
        (lambda state: drop_half(state["optimiser"]["state"]["network.head.fc.bias"]), "state of network.head.fc.bias"),
        (lambda state: state["optimiser"]["param_groups"].pop(), "the optimiser knows "),
        (lambda state: state.update(step=7), "it is of step 7, the run has 6"),
        (lambda state: state.update(tallies=[[3]]), "is incomplete"),
        (lambda state: state.pop("tallies"), "is incomplete"),
        (lambda state: state.update(tallies=[]), "is incomplete"),
        (lambda state: state.pop("skipped"), "is incomplete"),
        (lambda state: state.update(skipped=[3]), "it does not say which images were skipped"),
        (lambda state: state.update(learner=to_int8(state["learner"])), "the learner has other numbers than weights"),
        (lambda state: state.update(settings="[" * 100_000), "it has no settings"),
        (lambda state: state.pop("settings"), "it has no settings"),
    ],
)
def test_a_checkpoint_that_lacks_a_part_is_refused(run: Path, damage: Callable[[dict[str, Any]], Any], said: str):
    path = checkpoint.saved(run / "checkpoints")[-1]
    whole = path.read_bytes()
    state = checkpoint.read(path)
    damage(state)
    torch.save(state, path)
    try:
        with pytest.raises(ValueError, match=said):
            train(run, average=0.5)
    finally:
        path.write_bytes(whole)


HOLD = """
import sys, time, importlib.util
from pathlib import Path
spec = importlib.util.spec_from_file_location("lock", sys.argv[1])
lock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lock)
with lock.locked(Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_in_use_is_refused_until_its_process_is_dead(tmp_path: Path):
    command = [sys.executable, "-c", HOLD, lock.__file__, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=rf"in use by process {holder.pid} on \S+: "), lock.locked(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    with lock.locked(tmp_path):
        pass


@contextmanager
def full_after(length: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_log_that_cannot_be_cut_stays_whole(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    rows = [{"kind": "train", "step": step, "loss": 1.0} for step in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with full_after(100), pytest.raises(OSError, match=r"log\.jsonl could not be written, what was there .* is intact"):
        Log(tmp_path, 5, 9, "run")
    assert read_log(path) == rows


@pytest.mark.parametrize(
    "line",
    [
        *("5", "{}", '{"kind": "epoch", "step": "2"}', "\x00\x00", '{"kind": 3, "step": 1}'),
        *('{"kind": "epoch", "step": 2, "loss": "low"}', '{"kind": "train", "step": 2, "loss": [1]}'),
        *('{"kind": "skipped", "step": 1}', '{"kind": "skipped", "step": 1, "reason": 3}', "[" * 100_000),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str):
    row = '{"kind": "train", "step": 1}'
    (tmp_path / "log.jsonl").write_text(f"{row}\n{line}\n{row}\n")
    with pytest.raises(ValueError, match=r"line 2 of .*log\.jsonl is not a valid log row"):
        read_log(tmp_path / "log.jsonl")


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path):
    for name, read in (("log.jsonl", read_log), ("step-00000001.pt", checkpoint.read)):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match=rf"{name} (is not a regular file|cannot be read)"):
            read(tmp_path / name)


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path):
    row = '{"kind": "train", "step": 1}'
    (tmp_path / "log.jsonl").write_text(f"{row}\n{row[:9]}")
    assert read_log(tmp_path / "log.jsonl") == [json.loads(row)]


def test_a_full_disk_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    row = {"loss": 1.0, "name": "x" * 2000}
    with Log(tmp_path, 0, 9, "run") as log, full_after(1000), pytest.raises(OSError, match=r"log\.jsonl could not"):
        log.row("train", 1, row)
    with full_after(50), pytest.raises(OSError, match=r"tfevents.* could not be written: File too large"):
        Log(tmp_path / "other", 0, 9, "run")
    assert "Traceback" not in capfd.readouterr().err


def test_tensorboard_reads_what_was_written(tmp_path: Path):
    with Log(tmp_path, 0, 9, "run") as log:
        log.row("train", 3, {"loss": 1.5})
    [file] = (tmp_path / "tensorboard").iterdir()
    events = [event for event in EventFileLoader(str(file)).Load() if event.HasField("summary")]
    [value] = events[0].summary.value
    assert (events[0].step, value.tag) == (3, "train/loss")
    assert value.tensor.float_val[0] == 1.5
