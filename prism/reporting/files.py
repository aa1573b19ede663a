"""Files that appear whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file beside `path`, then put it in place: a reader sees the old file or the new one.

    The new one is on the disk before the old one goes, so neither a kill nor a power cut leaves half of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.partial")
    try:
        if path.exists() and not path.is_file():  # putting a file in its place would do away with /dev/null
            raise OSError("it is a folder, a device or a pipe")
        unfinished.unlink(missing_ok=True)
        unfinished.touch()
        mode = unfinished.stat().st_mode  # as the user's umask has it: safetensors would shut out all but the owner
        write(unfinished)
        if unfinished.stat().st_mode != mode:  # some file systems refuse every chmod
            unfinished.chmod(mode)
        _to_disk(unfinished)
        unfinished.replace(path)
        _to_disk(path.parent)
    except Exception as error:  # torch and safetensors report a full disk by errors of their own
        unfinished.unlink(missing_ok=True)
        reason = " ".join(str(error).split())[:200]
        raise OSError(f"{path} could not be written, what was there before is intact: {reason}") from None


def write_text(path: Path, text: str) -> None:
    """As UTF-8, and what of a file's name is none as an escape."""
    write_whole(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8", errors="backslashreplace"))


def one_line(name: str) -> str:
    """A name as every table, log and page can show it: line breaks, control characters and bytes that are no UTF-8 as
    escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
