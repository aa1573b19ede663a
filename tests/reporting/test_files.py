"""What is written takes the place of files and of nothing else."""

import os
from pathlib import Path

import pytest

from prism.reporting.files import write_text


def test_a_pipe_or_device_is_not_replaced_by_a_file(tmp_path: Path):
    pipe = tmp_path / "out.md"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=r"out\.md could not be written.*a folder, a device or a pipe"):
        write_text(pipe, "text")
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["out.md"]
    write_text(tmp_path / "other.md", "text")
    assert (tmp_path / "other.md").read_text() == "text"
