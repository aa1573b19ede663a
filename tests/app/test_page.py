"""The page in a real browser."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from prism.app.intake import EASEL, read_url
from tests.app import load
from tests.app.served import PATIENCE, Server, served
from tests.app.test_intake import as_png

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
PHONE = {"width": 390, "height": 844}
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
expect.set_options(timeout=1000 * PATIENCE)
Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served("tests.app.small", str(tmp_path_factory.mktemp("weights")), "{port}") as server:
        yield server.address


@pytest.fixture(scope="module")
def shipped() -> Iterator[Server]:
    """The page as `prism app` opens it."""
    with served("prism.cli", "app", "--port", "{port}") as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """A new visitor with each call. Afterwards: nothing was asked of another server, and no script complained."""
    contexts: list[BrowserContext] = []
    strangers, complaints = [], []

    def arrive(place: str = address, **how: Any) -> Page:
        contexts.append(browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | how)))
        page = contexts[-1].new_page()
        page.set_default_timeout(1000 * PATIENCE)
        own = (f"{place}/", "data:", "blob:")
        page.on("request", lambda request: strangers.append(request.url) if not request.url.startswith(own) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
        page.goto(place)
        expect(page.locator(".reading")).to_have_count(4)
        return page

    yield arrive
    for context in contexts:
        context.close()
    assert not strangers
    assert not complaints


def said(page: Page, column: int, network: int = 0) -> list[str]:
    """The bars of a network, 0 is PRISM, in a column of the comparison."""
    return page.locator(".reading").nth(column).locator(".answer").nth(network).locator("li .bar").evaluate_all(
        "bars => bars.map(bar => bar.parentElement.textContent + bar.style.width)"
    )  # fmt: skip


def hint(page: Page) -> Any:
    return expect(page.locator(".compare > p"))


def press(page: Page) -> None:
    """Begin to paint, and keep the button down."""
    page.locator("canvas").scroll_into_view_if_needed()
    box = page.locator("canvas").bounding_box()
    assert box is not None
    x, y, side = box["x"], box["y"], box["width"]
    page.mouse.move(x + 0.2 * side, y + 0.3 * side)
    page.mouse.down()
    page.mouse.move(x + 0.8 * side, y + 0.4 * side, steps=4)
    page.mouse.move(x + 0.3 * side, y + 0.7 * side, steps=4)


def open_file(page: Page, name: str, data: bytes) -> None:
    page.set_input_files("input[type=file]", {"name": name, "mimeType": "image/png", "buffer": data})


def image_of(page: Page) -> str:
    return page.locator(".board .image").get_attribute("src") or ""


def one_colour(colour: str) -> bytes:
    return as_png(Image.new("RGB", (1200, 900), colour))


def test_a_sample_is_chosen_and_the_answer_changes_while_it_is_painted_over(visit: Visit):
    page = visit()
    hint(page).to_contain_text("Nothing is hidden yet")
    sample = page.locator(".samples button").nth(3)
    sample.click()
    expect(sample).to_have_attribute("aria-pressed", "true")
    hint(page).to_contain_text(f"The right answer is {sample.get_attribute('data-truth')}")
    whole, hidden, baseline = said(page, 0), said(page, 1), said(page, 1, 1)
    assert whole == hidden
    press(page)
    hint(page).to_contain_text(re.compile(r"\d+% of the image is hidden"))
    assert said(page, 0) == whole
    assert said(page, 1) != hidden
    assert said(page, 1, 1) != baseline
    expect(page.locator("div.headline")).to_contain_text(
        re.compile(r"With \d+% .* and the baseline test_resnet (says|is)")
    )
    page.mouse.up()
    page.get_by_role("button", name="Undo").click()
    hint(page).to_contain_text("Nothing is hidden yet")
    assert said(page, 1) == hidden


def test_the_comparison_shows_four_experiments_and_their_steps(visit: Visit):
    page = visit()
    titles = ["whole image", "occluded", "occluded, memory off", "occluded, one step"]
    expect(page.locator(".reading h3")).to_have_text(titles)
    assert len({tuple(said(page, column)) for column in (0, 2, 3)}) == 3
    expect(page.locator(".chart tbody").first.locator("tr").nth(3)).to_contain_text("●○○ 1")
    expect(page.locator(".cost th[scope=row]").last).to_have_text("test_resnet, always")


def test_both_sets_are_there_and_each_says_what_it_knows(visit: Visit):
    page = visit()
    expect(page.locator(".known:visible")).to_contain_text("disc, square")
    page.get_by_label("Others").click()
    expect(page.locator(".known:visible")).to_contain_text("n0, n1")
    hint(page).to_contain_text("none of the ten")
    assert page.locator(".reading li").first.inner_text().startswith("n")


def test_masks_come_from_a_slider_and_can_be_moved(visit: Visit):
    page = visit()
    expect(page.get_by_role("button", name="Move the mask")).to_be_hidden()
    page.get_by_label("block", exact=True).click()
    hint(page).to_contain_text("25% of the image is hidden")
    veil = page.locator(".board .veil")
    before = veil.get_attribute("style") or ""
    assert "data:image/png" in before
    page.get_by_role("button", name="Move the mask").click()
    expect(veil).not_to_have_attribute("style", before)
    page.get_by_label("all but a block").click()
    hint(page).to_contain_text("75% of the image is hidden")


def test_pointing_at_a_slot_shows_it_alone(visit: Visit):
    page = visit()
    drawn = page.locator(".maps svg:not([hidden])").first.locator("path")
    assert drawn.count() > 1
    opacities = "paths => paths.map(path => getComputedStyle(path).fillOpacity)"
    assert set(drawn.evaluate_all(opacities)) == {"0.5"}
    page.locator(".maps svg:not([hidden])").first.hover()
    assert sorted(drawn.evaluate_all(opacities)) == ["0", *["0.75"] * (drawn.count() - 1)]
    assert re.match(r"slot \d+: \d+% of the image", drawn.first.locator("title").text_content() or "")


def test_slot_maps_follow_the_step_slider_and_the_page_can_be_kept(visit: Visit):
    page = visit()
    shown = page.locator(".maps figure").first.locator("svg:visible")
    taken = page.locator(".maps figure").first.locator("svg").count()
    expect(shown).to_have_attribute("data-step", str(taken))
    page.locator(".step input").fill("1")
    expect(shown).to_have_count(1)
    expect(shown).to_have_attribute("data-step", "1")
    press(page)  # new results keep the step
    page.mouse.up()
    hint(page).to_contain_text("of the image is hidden")
    expect(shown).to_have_attribute("data-step", "1")
    with page.expect_download() as kept:
        page.get_by_role("button", name="Save as HTML").click()
    text = Path(kept.value.path()).read_text()
    assert kept.value.suggested_filename == "prism.html"
    assert text.count("<svg") == page.locator(".maps svg").count()
    assert "--image" in text
    assert "<button" not in text
    assert "http" not in re.sub(r"data:[^\")]*", "", text)


def test_a_file_is_cut_by_the_browser_and_what_is_none_is_named(visit: Visit):
    page = visit()
    before = image_of(page)
    page.evaluate("""() => {
        const open = createImageBitmap, second = () => new Promise((done) => setTimeout(done, 1000));
        window.createImageBitmap = async (file) => (file.name === "slow.png" && await second(), open(file));
    }""")
    open_file(page, "slow.png", one_colour("blue"))
    expect(page.get_by_role("status")).to_have_text("Opening slow.png …")  # and the next choice wins
    open_file(page, "corrupt.png", one_colour("red")[:50])
    expect(page.get_by_role("status")).to_have_text("corrupt.png is not an image that this browser can open.")
    assert image_of(page) == before
    open_file(page, "good.png", one_colour("red"))
    expect(page.locator(".board .image")).not_to_have_attribute("src", before)
    assert read_url(image_of(page)).getcolors() == [(EASEL * EASEL, (255, 0, 0))]
    hint(page).not_to_contain_text("The right answer")
    expect(page.get_by_role("status")).to_have_text("")


def test_two_visitors_at_once_do_not_meet(visit: Visit):
    red, blue = visit(), visit()
    open_file(red, "mine.png", one_colour("red"))
    open_file(blue, "mine.png", one_colour("blue"))
    press(red)
    hint(red).to_contain_text("of the image is hidden")
    hint(blue).not_to_contain_text("The right answer")
    for page, colour in ((red, (255, 0, 0)), (blue, (0, 0, 255))):
        whole = page.locator(".seen").evaluate("seen => seen.style.getPropertyValue('--whole')")
        assert read_url(whole.strip()[4:-1].strip("\"'")).getcolors() == [(32 * 32, colour)]
    hint(blue).to_contain_text("Nothing is hidden yet")


def test_the_webcam_gives_an_image(visit: Visit):
    page = visit()
    before = image_of(page)
    page.get_by_role("button", name="Webcam").click()
    page.get_by_role("button", name="Take photo").click()
    expect(page.locator(".board .image")).not_to_have_attribute("src", before)
    expect(page.get_by_role("button", name="Webcam")).to_be_visible()


def test_a_busy_server_says_so_and_is_asked_again(browser: Browser, address: str):
    """By a visit of its own: the browser itself notes a 503 on its console."""
    context = browser.new_context()
    page = context.new_page()
    page.route("**/answer", lambda route: route.fulfill(status=503, json={"error": "Many visitors are waiting."}))
    page.goto(address)
    expect(page.get_by_role("status")).to_have_text("Many visitors are waiting.")
    page.unroute("**/answer")
    expect(page.locator(".reading")).to_have_count(4)
    expect(page.get_by_role("status")).to_have_text("")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 900}], ids=["phone", "desktop"])
def test_it_fits_the_screen_and_everyone_can_read_it(visit: Visit, viewport: dict[str, int], scheme: str):
    page = visit(viewport=viewport, color_scheme=scheme)
    page.get_by_label("block", exact=True).click()
    hint(page).to_contain_text("25% of the image is hidden")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")] == []


def test_the_default_page_opens_soon_with_both_sets(visit: Visit, shipped: Server):
    started = time.perf_counter()
    page = visit(shipped.address)
    seconds = time.perf_counter() - started
    crowd = os.getloadavg()[0] / (os.cpu_count() or 1)  # processes per core: a share of a core takes longer
    assert seconds < 3 * max(1, crowd)
    page.get_by_label("Photographs").click()
    expect(page.locator(".known:visible")).to_contain_text("tench, English springer")
    expect(page.locator("div.headline")).to_have_text(
        re.compile(r"With 8\d% of the image hidden, PRISM says parachute .* the baseline pvt_v2_b0 says golf ball")
    )
    page.get_by_role("button", name="a portrait").click()
    expect(page.locator("div.headline")).to_have_text(
        "PRISM says none of the ten and the baseline pvt_v2_b0 says none of the ten."
    )


def test_visitors_under_load_are_answered_and_do_not_meet(shipped: Server):
    assert load.measure(shipped, visitors=3, seconds=3)["answers"] > 0
