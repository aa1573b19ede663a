"""What a run tells while it runs: JSON lines, TensorBoard, and a bar with the time left."""

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.record_writer import RecordWriter

from prism.reporting.files import one_line, write_text


class Log(AbstractContextManager["Log"]):
    """`log.jsonl` and TensorBoard in `folder`, the bar on the terminal.

    A run that goes on from step `first` drops what was logged after it: those steps will be taken again. Without a
    folder (all processes but the first) it is silent.
    """

    def __init__(self, folder: Path | None, first: int, total: int, title: str):
        self.folder = folder
        self._console = Console(stderr=True, quiet=folder is None)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total, completed=first, said="")
        self._events = None
        self._last = (time.perf_counter(), first)
        if folder:
            _cut(folder / "log.jsonl", first)
            self._events = _Events(folder / "tensorboard", first)

    def __enter__(self) -> "Log":
        self._bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
        if self._events:
            self._events.file.close()

    def advance(self, step: int, said: str) -> None:
        self._bar.update(self._task, completed=step, said=said)

    def speed(self, step: int) -> float:
        """Steps per second since the last call, or since the clock was set."""
        (then, before), now = self._last, time.perf_counter()
        self._last = (now, step)
        return (step - before) / max(now - then, 1e-9)

    def set_clock(self, step: int) -> None:
        """So that evaluation does not count as training."""
        self._last = (time.perf_counter(), step)

    def row(self, kind: str, step: int, figures: Mapping[str, Any]) -> None:
        """One line of the log: `kind` is "train", "epoch" or "skipped"."""
        if not self.folder or not self._events:
            return
        path = self.folder / "log.jsonl"
        try:
            with path.open("a") as file:
                file.write(json.dumps({"kind": kind, "step": step, **figures}) + "\n")
            numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
            self._events.add(step, {f"{kind}/{name}": value for name, value in numbers.items()})
        except OSError as error:
            raise OSError(f"{path} could not be written, {error.strerror}: repeat the command to go on") from None

    def say(self, sentence: str) -> None:
        self._console.print(one_line(sentence), markup=False, highlight=False, soft_wrap=True)


class _Events:
    """TensorBoard's file, written at once: the usual writer's thread tells of a full disk by a traceback."""

    def __init__(self, folder: Path, first: int):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self.file = (folder / name).open("xb", buffering=0)
        self._records = RecordWriter(self)
        start = SessionLog(status=SessionLog.START)
        try:
            self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
            # TensorBoard forgets what an interrupted run wrote from here on
            self._add(Event(wall_time=time.time(), step=first + 1, session_log=start))
        except OSError as error:
            self.file.close()
            raise OSError(f"{folder / name} could not be written: {error.strerror}") from None

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def write(self, data: bytes) -> None:
        """What the records ask for. Nothing waits in a buffer, where a full disk would find it once more."""
        while data:
            data = data[self.file.write(data) :]

    def _add(self, event: Event) -> None:
        self._records.write(event.SerializeToString())


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; a last line that a kill cut short is left out."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    lines = path.read_text(errors="replace").split("\n") if path.exists() else [""]
    rows = [_row(line) for line in lines[:-1]]  # every row ends its line
    if None in rows:
        raise ValueError(f"line {1 + rows.index(None)} of {path} is not a valid log row: remove it to continue")
    return [row for row in rows if row is not None]


def _row(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or type(found.get("step")) is not int:
        return None
    texts = {"kind", "reason"} if found.get("kind") == "skipped" else {"kind"}
    sound = found.get("kind") in ("train", "epoch", "skipped") and isinstance(found.get("reason", ""), str)
    figures = all(isinstance(found[name], int | float | None) for name in found.keys() - texts)
    return found if sound and figures and texts <= found.keys() else None


def _cut(path: Path, step: int) -> None:
    """Keep the rows up to a step; of an epoch that ends there only if its own row is there, as it comes last."""
    rows = read_log(path)
    closed = any((row["kind"], row["step"]) == ("epoch", step) for row in rows)
    kept = [row for row in rows if row["step"] < step or (row["step"] == step and (closed or row["kind"] == "train"))]
    if kept:
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))
    else:
        path.unlink(missing_ok=True)
