"""Every Python block of the README runs, one after the other, as a reader would type them."""

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_python_blocks_run():
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 3
    scope: dict[str, object] = {}
    for block in blocks:
        exec(block, scope)


def test_commands_exist():
    from prism.cli import app

    named = set(re.findall(r"^prism (\w+)", README, flags=re.MULTILINE))
    assert named >= {"info", "speed", "slots", "occlusion"}
    assert named <= {command.removesuffix("_") for command in app._subcommands}


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), target
