"""Names are data: whatever a file is called, tables, pages and logs show it, on one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from prism.reporting.files import one_line
from prism.reporting.pages import Section, page
from prism.reporting.tables import markdown, progress, read_csv, show, write
from prism.training.log import Log, read_log

BYTES = os.fsdecode(b"caf\xe9")  # Latin-1, which is not UTF-8
NAMES = ["[/bold].jpg", "a|b.jpg", "two\nlines.jpg", BYTES, "$x$ <b> 100%", "\x1b[31mred"]


@pytest.mark.parametrize("name", NAMES)
def test_every_table_and_page_takes_every_name(name: str, tmp_path: Path, capsys):
    rows = [{"image": name, name: 1.5}]
    show(rows, name)
    with progress() as said:
        said(name)
    assert one_line(name).splitlines()[0][:5] in capsys.readouterr().out
    write(rows, tmp_path / "table", name)
    assert len(read_csv(tmp_path / "table.csv")) == 1
    head, _, body = markdown(rows).splitlines()
    assert head.replace("\\|", "").count("|") == body.replace("\\|", "").count("|") == 3
    assert "<b>" not in page(name, [Section(name, name, rows)], name)


@pytest.mark.parametrize("name", NAMES)
def test_the_log_says_and_keeps_every_name(name: str, tmp_path: Path):
    with Log(tmp_path, 0, 1, "toy") as log:
        log.row("skipped", 1, {"reason": name})
        log.say(f"skipped: {name}")
    assert read_log(tmp_path / "log.jsonl")[0]["reason"] == name


def test_predictions_of_files_with_strange_names(tmp_path: Path):
    paths = [os.path.join(tmp_path, name.replace("/", "")) for name in NAMES]
    for path in paths:
        Image.new("RGB", (40, 40)).save(path, "PNG")
    command = [sys.executable, "-m", "prism.cli", "predict", *paths, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [entry["image"] for entry in found] == paths
