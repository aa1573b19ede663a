"""The command answers what needs no network without importing torch."""

import subprocess
import sys

import pytest

TRACED = """
import sys
sys.argv = ["prism", *{words!r}]
from prism_launcher import main
try:
    main()
except SystemExit as stop:
    print("status", stop.code)
assert ("torch" in sys.modules) == {torch}, "torch was imported" if "torch" in sys.modules else "torch was not"
"""


def ask(words: list[str], torch: bool = False) -> str:
    code = TRACED.format(words=words, torch=torch)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--help"], "prism COMMAND --help"),
        ([], "usage: prism COMMAND"),
        (["recipes"], "imagenette"),
        (["study", "list"], "Table 2(a)"),
        (["trian"], "did you mean 'train'?"),
        (["train", "scenes", "--no-such-option"], "no-such-option"),
        (["train", "scenes", "--help"], "--smallest-crop"),
        (["occlusion", "resnet18"], "--data"),
        (["eval", "--help"], "--fixed-steps"),
        (["speed", "--help"], "images per second"),
    ],
)
def test_lists_help_and_usage_errors_need_no_torch(words: list[str], sentence: str):
    assert sentence.lower() in ask(words).lower()


def test_a_command_has_the_whole_package():
    assert "GMACs by steps" in ask(["info", "prism_nano", "--size", "32"], torch=True)


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    from prism.cli import main

    monkeypatch.setitem(sys.modules, "rich.table", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(SystemExit) as stopped:
        main(["recipes"])
    assert stopped.value.code == "prism: rich is not installed; in a clone of PRISM: pip install '.[occlusion]'"
