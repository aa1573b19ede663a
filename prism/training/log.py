"""What a run tells while it runs: JSON lines, TensorBoard, and a bar with the time left."""

import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter


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
        self._writer = None
        self._last = (time.perf_counter(), first)
        if folder:
            _cut(folder / "log.jsonl", first)
            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first or None)

    def __enter__(self) -> "Log":
        self._bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
        if self._writer:
            self._writer.close()

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
        if not self.folder or not self._writer:
            return
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps({"kind": kind, "step": step, **figures}) + "\n")
        for name, value in figures.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def say(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, soft_wrap=True)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; a last line that a kill cut short is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _cut(path: Path, step: int) -> None:
    """Keep the rows up to a step."""
    if rows := [row for row in read_log(path) if row["step"] <= step]:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.unlink(missing_ok=True)
