"""One process at a time writes a folder."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` against other processes; the one that holds it already is named.

    The system frees a lock when its process ends, however it ends, so that none is ever stale; and a reader of images
    that outlives a killed training does not inherit it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    with path.open("a+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ValueError(f"{folder} is in use by {holder}: wait for it, or choose another --out") from None
        _write(path, file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n")
        try:
            yield
        finally:
            _write(path, file.fileno(), "")


def _write(path: Path, file: int, text: str) -> None:
    try:
        os.ftruncate(file, 0)
        os.write(file, text.encode())
    except OSError as error:
        raise OSError(f"{path} could not be written: {error.strerror}") from None
