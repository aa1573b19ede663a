"""What is installed is pinned, and nothing that a user hands over is ever executed."""

import ast
import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FILES = [*sorted((ROOT / "prism").rglob("*.py")), ROOT / "prism_launcher.py", ROOT / "docs" / "pages.py"]
PICKLES = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "cloudpickle"}
NEVER = {"eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "numpy.load", "np.load"}


def dangers(source: str) -> list[str]:
    """What could execute data: unpickling, `eval`, a shell."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [name.name for name in names if name.name.partition(".")[0] in PICKLES]
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in PICKLES:
                found.append(module)
            case ast.Call(func=function, keywords=keywords):
                called, given = ast.unparse(function), {word.arg: ast.unparse(word.value) for word in keywords}
                if called in NEVER or given.get("shell", "False") != "False":
                    found.append(ast.unparse(node))
                if called == "torch.load" and given.get("weights_only") != "True":
                    found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled_or_executed(path: Path):
    assert not dangers(path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from dill import loads",
        "eval('1')",
        "exec(text)",
        "subprocess.run(words, shell=True)",
        "os.system('ls')",
        "yaml.load(text)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
    ],
)
def test_the_check_sees_what_it_looks_for(source: str):
    assert dangers(source)
    assert not dangers("torch.load(path, weights_only=True); model.eval(); ast.literal_eval(text)")


def test_every_package_that_is_needed_is_pinned():
    """Down to the last, for the Python and the machine that the test runs on."""
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] not in "# "
    )
    pinned, seen = {_normal(name) for name in pins}, set()
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*ours["dependencies"], *(line for extra in ours["optional-dependencies"].values() for line in extra)]
    waiting = [Requirement(line) for line in lines if not line.startswith("prism-vision")]
    while waiting:
        wanted = waiting.pop()
        if (own := (_normal(wanted.name), *sorted(wanted.extras))) in seen:
            continue
        seen.add(own)
        try:
            below = [Requirement(line) for line in requires(wanted.name) or ()]
        except PackageNotFoundError:
            continue
        extras = [{"extra": extra} for extra in ("", *wanted.extras)]
        waiting += [each for each in below if not each.marker or any(map(each.marker.evaluate, extras))]
    assert sorted({name for name, *_ in seen} - pinned) == []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
