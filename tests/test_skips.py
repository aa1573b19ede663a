"""A skipped test cannot hide."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = """
import pytest

@pytest.mark.parametrize("case", range(3))
def test_works(case): pass

@pytest.mark.skipif(True, reason="no chromium is installed")
def test_page(): pass

@pytest.mark.skipif(True, reason="no chromium is installed")
def test_another(): pass

def test_gpu(): pytest.skip("no GPU")
"""


def run(folder: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", "--rootdir", str(folder), "-c", "/dev/null", *words]
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout.strip().splitlines()[-1]


def test_the_last_line_counts_and_gives_reasons(tmp_path: Path):
    (tmp_path / "test_some.py").write_text(SOURCE)
    said = "3 tests were skipped: no chromium is installed (2); no GPU (1)"
    assert run(tmp_path) == (0, said)
    assert run(tmp_path, "--no-skips", "-n", "1") == (1, said)
    assert run(tmp_path, "--no-skips", "-k", "works") == (0, "0 tests were skipped")
