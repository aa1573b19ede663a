"""The page as visitors meet it: in a real browser, on a server of its own."""

import http.client
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import gradio as gr
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from prism.app.explanation import Switches
from prism.app.intake import MOST_BYTES, read_url
from prism.app.networks import open_players
from prism.app.page import Playground, _explained
from prism.app.samples import samples
from prism.occlusion.benchmark import CLEAN, Setting
from tests.app.small import save_baseline, save_prism
from tests.app.test_intake import as_png, blank_png

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
PNG = re.compile("^data:image/png;base64,")
PATIENCE = 60_000  # ms; a busy machine is slow, not wrong
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("weights")
    return save_prism(place / "a.safetensors"), save_baseline(place / "b.safetensors")


@pytest.fixture(scope="module")
def playground(files: tuple[Path, Path]) -> Playground:
    players = open_players(*files)
    return Playground(players, samples(players, None), None)


@pytest.fixture(scope="module")
def address(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as a user starts it. Afterwards: whatever was sent to it, it wrote no traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    words = ["app", "--checkpoint", str(files[0]), "--baseline", str(files[1]), "--port", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen([sys.executable, "-m", "prism.cli", *words], stdout=output, stderr=output)
        place = f"http://127.0.0.1:{port}"
        try:
            until = time.monotonic() + 240
            while not reached(place):
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.3)
            yield place
        finally:
            server.terminate()
            server.wait()
    assert f"the playground is at {place}" in log.read_text()
    assert "Traceback" not in log.read_text()


def reached(address: str) -> bool:
    try:
        return answered(address, "GET", "/") == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Callable[[], Page]]:
    """A new visitor with each call. Afterwards: nothing was asked of another server, and no script failed."""
    contexts: list[BrowserContext] = []
    strangers, failures = [], []

    def arrive() -> Page:
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 900}))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: strangers.append(request.url) if not at_home(request.url, address) else None)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.goto(address)
        expect(page.locator(".results .answer")).to_have_count(2)
        return page

    yield arrive
    for context in contexts:
        context.close()
    assert not strangers
    assert not failures


def at_home(url: str, address: str) -> bool:
    return url.startswith((f"{address}/", "data:", "blob:"))


def said(page: Page, network: int, column: int) -> list[str]:
    """The bars of a network, 0 is PRISM, for the whole (0) or the hidden (1) picture."""
    return page.locator(".answer").nth(network).locator("figure").nth(column).locator("li .bar").evaluate_all(
        "bars => bars.map(bar => bar.parentElement.innerText + bar.style.width)"
    )  # fmt: skip


def paint(page: Page) -> None:
    page.locator(".easel canvas").scroll_into_view_if_needed()
    box = page.locator(".easel canvas").bounding_box()
    assert box is not None
    x, y, side = box["x"], box["y"], box["width"]
    page.mouse.move(x + 0.2 * side, y + 0.3 * side)
    page.mouse.down()
    page.mouse.move(x + 0.8 * side, y + 0.4 * side, steps=4)
    page.mouse.move(x + 0.3 * side, y + 0.7 * side, steps=4)
    page.mouse.up()


def open_file(page: Page, name: str, data: bytes) -> None:
    page.set_input_files(".easel input[type=file]", {"name": name, "mimeType": "image/png", "buffer": data})


def image_of(page: Page) -> str:
    return page.locator(".easel .image").get_attribute("src") or ""


def one_colour(colour: str) -> bytes:
    return as_png(Image.new("RGB", (120, 90), colour))


@in_a_browser
def test_a_sample_is_chosen_and_painted_over(visit: Callable[[], Page], playground: Playground):
    page = visit()
    hint = page.locator(".results section p").first
    expect(hint).to_contain_text(f"It shows: {playground.samples[0].truth}")
    expect(hint).to_contain_text("Nothing is hidden yet")
    page.locator(".easel .samples button").nth(3).click()
    expect(page.locator(".easel .image")).to_have_attribute("src", playground.samples[3].image)
    expect(hint).to_contain_text(f"It shows: {playground.samples[3].truth}")
    whole, hidden = said(page, 0, 0), said(page, 0, 1)
    assert whole == hidden
    paint(page)
    expect(page.locator(".recovery polyline")).to_have_count(4)
    assert said(page, 0, 0) == whole
    assert said(page, 0, 1) != hidden
    page.get_by_role("button", name="Undo").click()
    expect(hint).to_contain_text("Nothing is hidden yet")
    assert said(page, 0, 1) == hidden


@in_a_browser
def test_memory_and_steps_are_switched(visit: Callable[[], Page]):
    page = visit()
    with_memory = said(page, 0, 0)
    baseline = said(page, 1, 0)
    expect(page.locator(".recalled figure").first).to_contain_text("prototype")
    page.get_by_label("Memory").click()
    expect(page.locator(".recalled").first).to_contain_text("the memory is off")
    assert said(page, 0, 0) != with_memory
    page.get_by_label("Memory").click()
    expect(page.locator(".recalled figure").first).to_contain_text("prototype")
    assert said(page, 0, 0) == with_memory
    page.get_by_label("2", exact=True).click()
    expect(page.locator(".dots")).to_have_text(["●●○"] * 8)
    assert said(page, 1, 0) == baseline


@in_a_browser
def test_masks_come_from_a_slider_and_can_be_moved(visit: Callable[[], Page]):
    page = visit()
    expect(page.get_by_role("button", name="Elsewhere")).to_be_hidden()
    page.get_by_label("BlockMask").click()
    expect(page.locator(".results section p").first).to_contain_text("25% of the image is hidden")
    expect(page.locator(".easel .veil")).to_have_attribute("src", PNG)
    before = page.locator(".easel .veil").get_attribute("src") or ""
    page.get_by_role("button", name="Elsewhere").click()
    expect(page.locator(".easel .veil")).not_to_have_attribute("src", before)
    page.get_by_label("OnlyOne").click()
    expect(page.locator(".results section p").first).to_contain_text("75% of the image is hidden")


@in_a_browser
def test_slot_maps_follow_the_step_slider_and_the_page_can_be_kept(visit: Callable[[], Page]):
    page = visit()
    page.get_by_label("3", exact=True).click()
    expect(page.locator(".dots").first).to_have_text("●●●")
    shown = page.locator(".stage").first.locator(".maps figure").first.locator("img:visible")
    expect(shown).to_have_attribute("data-step", "3")
    page.locator(".step input").fill("1")
    expect(shown).to_have_count(1)
    expect(shown).to_have_attribute("data-step", "1")
    paint(page)  # new results keep the step
    expect(page.locator(".recovery")).to_be_visible()
    expect(shown).to_have_attribute("data-step", "1")
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download").click()
    text = Path(kept.value.path()).read_text()
    assert kept.value.suggested_filename == "prism.html"
    assert text.count("data-step=") == 4 * 2 * 3
    assert "<svg" in text
    assert "<button" not in text
    assert 'src="http' not in text


@in_a_browser
def test_bad_files_are_refused_with_a_message_and_the_page_goes_on(visit: Callable[[], Page], tmp_path: Path):
    page = visit()
    before = image_of(page)
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(MOST_BYTES + 1_000_000)
    for name, data, message in (
        ("corrupt.png", one_colour("red")[:50], "the file is damaged"),
        ("text.png", b"no picture", "not a readable image"),
        ("bomb.png", blank_png(20_000, 10_000), "limit is 32 megapixels"),
        ("large.png", None, "limit is 20 MB"),
    ):
        if data is None:
            page.set_input_files(".easel input[type=file]", large)
        else:
            open_file(page, name, data)
        expect(page.locator(".toast-body").filter(has_text=message)).to_be_visible()
    assert image_of(page) == before
    open_file(page, "good.png", one_colour("red"))
    expect(page.locator(".easel .image")).not_to_have_attribute("src", before)
    assert read_url(image_of(page)).getcolors() == [(79 * 79, (255, 0, 0))]


@in_a_browser
def test_two_visitors_at_once_do_not_meet(visit: Callable[[], Page]):
    red, blue = visit(), visit()
    start = image_of(red)
    open_file(red, "mine.png", one_colour("red"))
    open_file(blue, "mine.png", one_colour("blue"))
    blue.get_by_label("Memory").click()
    for page in (red, blue):
        expect(page.locator(".easel .image")).not_to_have_attribute("src", start)
    paint(red)
    expect(red.locator(".recovery")).to_be_visible()
    expect(blue.locator(".recalled").first).to_contain_text("the memory is off")
    for page, colour in ((red, (255, 0, 0)), (blue, (0, 0, 255))):
        seen = page.locator(".answer img").first
        expect(seen).to_have_attribute("src", PNG)
        assert read_url(seen.get_attribute("src") or "").getcolors() == [(32 * 32, colour)]
    assert "Nothing is hidden yet" in blue.locator(".results section p").first.inner_text()
    assert "the memory is off" not in red.locator(".results .stages").inner_text()


@in_a_browser
def test_the_webcam_gives_a_picture(visit: Callable[[], Page]):
    page = visit()
    before = image_of(page)
    page.get_by_role("button", name="Webcam").click()
    page.get_by_role("button", name="Take photo").click()
    expect(page.locator(".easel .image")).not_to_have_attribute("src", before)
    expect(page.get_by_role("button", name="Webcam")).to_be_visible()


def test_no_file_of_the_server_is_reached(address: str):
    for path in (
        "/gradio_api/file=/etc/passwd",
        f"/gradio_api/file={__file__}",
        "/file=pyproject.toml",
        "/gradio_api/info",
    ):
        assert answered(address, "GET", path) == 404
    assert answered(address, "POST", "/gradio_api/upload") == 404
    assert answered(address, "POST", "/gradio_api/queue/join", {"Content-Length": str(10**9)}) == 413
    assert answered(address, "GET", "/") == 200


def answered(address: str, method: str, path: str, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        connection.request(method, path, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("value", "setting", "seed"),
    [
        (None, CLEAN, 0),
        ("text", CLEAN, 0),
        ({"image": 5}, CLEAN, 0),
        ({"image": "/etc/passwd"}, CLEAN, 0),
        ({"image": "good", "mask": "data:image/png;base64,AAAA"}, CLEAN, 0),
        ({"image": "good"}, Setting("PatchMask", 7), 0),
        ({"image": "good"}, CLEAN, -1),
    ],
)
def test_a_message_that_no_browser_would_send_is_answered_by_a_sentence(
    playground: Playground, value: object, setting: Setting, seed: int
):
    if isinstance(value, dict) and value.get("image") == "good":
        value = value | {"image": playground.samples[0].image}
    with pytest.raises(gr.Error) as refused:
        _explained(playground, value, setting, seed, Switches())
    assert "Traceback" not in str(refused.value)
