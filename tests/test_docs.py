"""What the site shows is there: it builds without a warning, its Python runs, its commands and their flags exist."""

import functools
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from prism.cli import VERBS, main
from prism.commands import parsing
from prism.studies.catalogue import find_study, overview
from tests.conftest import CHROMIUM, in_a_browser
from tests.test_readme import ROOT, commands, folder, python_blocks, run_shortened

__all__ = ["folder"]  # a fixture

PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXTS = {path.stem: path.read_text() for path in PAGES}
# what makes an example of minutes one of seconds
SHORT = {"steps = 100": "steps = 2", "length=300": "length=8", '"train": 600, "val": 100': '"train": 80, "val": 16'}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; strict, so that a dead link or anchor fails here."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return out


def test_pages_fetch_nothing_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        loaded = re.findall(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"([^\"]+)\"", page.read_text())
        loaded += re.findall(r"<link\b[^>]*\bhref=\"([^\"]+)\"", page.read_text())
        assert loaded
        assert not [url for url in loaded if url.startswith(("http:", "https:", "//"))], page


def test_links_work_in_the_repository_too():
    """The site checks its own; most people read the texts where they lie."""
    texts = [*PAGES, *ROOT.glob("*.md"), *(ROOT / "results").rglob("*.md"), *(ROOT / "prism").rglob("*.md")]
    for text in texts:
        prose = re.sub(r"```.*?```|`[^`]*`", "", text.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", prose):
            made = link.startswith("api/")  # the reference is made of docstrings
            assert made or ":" in link or (text.parent / link).exists(), f"{text} points to {link}"


def test_results_are_pages_from_their_one_source(site: Path):
    for source in (ROOT / "results").glob("*/README.md"):
        assert (site / source.relative_to(ROOT).with_name("index.html")).exists()
    for source in (ROOT / "results").rglob("*.csv"):
        assert (site / source.relative_to(ROOT)).read_bytes() == source.read_bytes()


def test_every_module_is_in_the_reference(site: Path):
    for module in (ROOT / "prism").glob("*/[!_]*.py"):
        page = site / "api" / f"{module.parent.name}.html"
        assert f'id="prism.{module.parent.name}.{module.stem}"' in page.read_text()


def run_python(page: str) -> None:
    """From top to bottom, as a reader would; a sketch, which needs files of the reader's, is compiled."""
    scope: dict[str, object] = {}
    for beside, code in python_blocks(TEXTS[page]):
        for long, short in SHORT.items():
            code = code.replace(long, short)
        compiled = compile(code, page, "exec")
        if "Sketch" not in beside:
            exec(compiled, scope)


@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if python_blocks(text) and name != "folder"])
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run_python(page)


def test_a_folder_is_trained_on_from_start_to_finish(folder: Path):
    """The page on folders, Python and commands: what it renders is what it trains on."""
    run_python("folder")
    for words in commands(TEXTS["folder"]):
        if words[0] != "feed":  # 200 steps whatever is asked; tests/training measures fewer
            run_shortened(words)
    assert (folder / "runs" / "occlusion" / "report.html").exists()


@in_a_browser
def test_search_finds_a_page(site: Path):
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever).start()
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.locator(".md-search__input").first.fill("torchvision resnet18")
        found = page.locator(".md-search-result__link").first
        found.wait_for(timeout=60_000)
        assert "occlusion.html" in str(found.get_attribute("href"))
        browser.close()
        server.shutdown()


def silenced(command: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the same arguments and does nothing."""

    @functools.wraps(command)
    def nothing(*_: Any, **__: Any) -> None:
        return None

    return nothing


@pytest.fixture
def _only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "prepared", silenced)


@pytest.mark.usefixtures("_only_parsed")
@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if commands(text)])
def test_commands_exist(page: str):
    for words in commands(TEXTS[page]):
        main(words)
        if words[0] == "study" and words[1] not in ("all", "list"):
            find_study(words[1])


@pytest.mark.usefixtures("_only_parsed")
def test_a_flag_that_does_not_exist_is_seen():
    with pytest.raises(SystemExit):
        main(["occlusion", "resnet18", "--data", "scenes", "--no-such-flag"])


def test_every_command_and_study_is_shown():
    shown = {words[0] for text in TEXTS.values() for words in commands(text)}
    assert shown >= set(VERBS)
    for row in overview():
        assert f"| `{row['study']}` | {row['answers']} | {row['in the paper']} |" in TEXTS["studies"]
