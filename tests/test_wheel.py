"""What a user installs: the wheel, in a fresh environment that holds the base dependencies and nothing else."""

import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FILES = ("prism_launcher.py", "pyproject.toml", "README.md", "LICENSE")  # beside the package


def base_packages() -> set[str]:
    """Names of the distributions that `pip install prism-vision` brings, from what each says that it requires."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in distribution("prism-vision").requires or ()]
    while waiting:
        wanted = waiting.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += map(Requirement, distribution(name).requires or ())
    return found


def expose(name: str, folder: Path) -> None:
    """Link what a distribution of the running environment consists of into another folder."""
    installed = distribution(name)
    for top in {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(installed.locate_file(top))))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its programs."""
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "prism", place / "source" / "prism", ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, place / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(place / "source")]
    subprocess.run(build, check=True, timeout=300)
    venv.create(place / "env")
    programs = place / "env" / "bin"
    [wheel] = place.glob("*.whl")
    install = [*pip, "--python", str(programs / "python"), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=300)
    [packages] = (place / "env" / "lib").glob("python*/site-packages")
    for name in base_packages():
        expose(name, packages)
    return programs


def test_the_base_installation_is_a_timm_model_with_weights(environment: Path, tmp_path: Path):
    code = (
        "import prism, timm, torch; model = timm.create_model('prism_nano', pretrained=True).eval();"
        "print(prism.__file__, tuple(model(torch.zeros(1, 3, 64, 64)).shape))"
    )
    words = [environment / "python", "-I", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(environment.parent))
    assert done.stdout.endswith("(1, 10)\n")


def test_a_command_names_the_extra_that_it_misses(environment: Path, tmp_path: Path):
    words = [environment / "prism", "predict", "photo.jpg"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert re.fullmatch(r"prism: \w+ is not installed; .* pip install '.\[occlusion\]'\n", done.stderr)
