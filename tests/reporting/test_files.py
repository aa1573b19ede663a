"""What is written takes the place of files and of nothing else."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from prism.reporting.files import write_text, write_whole


def test_a_pipe_or_device_is_not_replaced_by_a_file(tmp_path: Path):
    pipe = tmp_path / "out.md"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=r"out\.md could not be written.*a folder, a device or a pipe"):
        write_text(pipe, "text")
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["out.md"]
    write_text(tmp_path / "other.md", "text")
    assert (tmp_path / "other.md").read_text() == "text"


def test_weights_may_be_read_by_whom_the_umask_lets(tmp_path: Path):
    mine = tmp_path / "weights.safetensors"
    before = os.umask(0o027)
    try:
        write_whole(mine, lambda unfinished: save_file({"a": torch.zeros(2)}, unfinished))
    finally:
        os.umask(before)
    assert mine.stat().st_mode & 0o777 == 0o640
