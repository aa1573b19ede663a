"""A playground in a process of its own, as visitors meet it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

PATIENCE = 60.0  # seconds; a busy machine is slow, not wrong


class Server(NamedTuple):
    address: str
    process: int


@contextmanager
def served(*words: str) -> Iterator[Server]:
    """`python -m WORDS` with a free {port}. Afterwards: whatever was sent to it, it wrote nothing, and no traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", *(word.format(port=port) for word in words)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == f"the playground is at {address}; Ctrl-C ends it\n", server.stdout.read()
        until = time.monotonic() + PATIENCE
        while not _listens(port):
            assert time.monotonic() < until
            time.sleep(0.05)
        yield Server(address, server.pid)
    finally:
        server.terminate()
        with server.stdout:
            said = server.stdout.read()
        server.wait()
    assert not said, said


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
