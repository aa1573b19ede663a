"""Pages: self-contained, escaped, and made from what was written."""

import re
from pathlib import Path

from matplotlib.figure import Figure
from playwright.sync_api import sync_playwright

from prism.reporting import provenance
from prism.reporting.figures import save
from prism.reporting.pages import Section, as_markdown, page, publish, write_page, write_report
from prism.reporting.tables import Tables, markdown
from tests.conftest import CHROMIUM, in_a_browser


def test_names_are_escaped_and_nothing_is_fetched(tmp_path: Path):
    figure = save(Figure(figsize=(1, 1)), tmp_path / "a" / "drawn.png")
    rows = [{"model": "<script>alert(1)</script>", "score": 1.5}, {"model": "a|b", "score": None}]
    with provenance.called_as(["eval", "<x>"]):
        made = page("<Title>", [Section("Table", "1 < 2", rows), Section("", "", figure)], "In short.")
    assert "alert(1)</script>" not in made
    assert "&lt;script&gt;alert(1)" in made
    assert '<p class="summary">In short.</p>' in made
    assert "prism eval &#39;&lt;x&gt;&#39;" in made
    assert not re.findall(r"(?:src|href)=\"(?!data:)", made)
    assert made.count("data:image/png;base64,") == 1
    assert "<td>1.5</td>" in made
    assert '<td class="words">a|b</td>' in made


def test_the_page_opens_with_its_first_paragraph_and_its_first_figure(tmp_path: Path):
    figure = save(Figure(figsize=(1, 1)), tmp_path / "drawn.png")
    table = Section("Table", "In short.\n\nIn full.", [{"x": 1}])
    write_report(tmp_path, "Title", [table, Section("Rows", "", [{"y": 2}]), Section("Curves", "A caption.", figure)])
    parts = ["<h1>Title", "In short.</p>", "<img", "A caption.</figcaption>", "<h2>Table", "<p>In full.", "<h2>Rows"]
    places = [(tmp_path / "report.html").read_text().index(part) for part in parts]
    assert places == sorted(places)


@in_a_browser
def test_tables_sort_by_numbers_and_by_words(tmp_path: Path):
    rows = [{"model": "b", "score": "9.5 ± 1.0"}, {"model": "c", "score": ""}, {"model": "a", "score": "+10.2"}]
    write_page(tmp_path / "page.html", "Title", [Section("", "", rows)])
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page()
        shown.goto((tmp_path / "page.html").as_uri())
        column = shown.locator("td:first-child")
        shown.get_by_role("button", name="score").click()
        assert column.all_inner_texts() == ["b", "a", "c"]
        shown.keyboard.press("Enter")
        assert column.all_inner_texts() == ["a", "b", "c"]
        shown.get_by_role("button", name="model").click()
        assert column.all_inner_texts() == ["a", "b", "c"]
        assert shown.locator("[aria-sort]").all_inner_texts() == ["model"]
        browser.close()


def test_a_page_is_made_from_the_files(tmp_path: Path):
    seen = []

    def report(tables: Tables, out: Path) -> list[Section]:
        seen.append(tables)
        return [Section("Numbers", "One.", tables["numbers"])]

    publish({"numbers": [{"x": 1, "y": 0.5}, {"x": 2}], "none": []}, report, tmp_path, "Title")
    assert seen == [{"numbers": [{"x": 1, "y": 0.5}, {"x": 2, "y": None}]}]
    assert "One." in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "none.csv").exists()


def test_markdown_keeps_its_columns(tmp_path: Path):
    assert markdown([{"a": "x|y", "b": 0.12344}]) == "| a | b |\n| --- | --- |\n| x\\|y | 0.1234 |"
    said = as_markdown([Section("Head", "Text.", tmp_path / "f.png")], tmp_path, "prism x")
    assert said == "## Head\n\nText.\n\n![f](f.png)\n\n`prism x`\n"
