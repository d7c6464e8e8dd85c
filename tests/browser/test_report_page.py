"""Reports in a real browser: sorting, choosing, drawing; and that it asks nobody for anything."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks.datasets import DATASETS
from benchmarks.report.page import write_report
from support.processes import PATIENCE_S
from support.report_runs import HOSTILE, answers, write_run

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

PATIENCE_MS = 1000 * PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two methods on six prompts, whose texts are hostile."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [
        {"question_id": f"p{n}", "category": "x", "turns": [f"question {n} {HOSTILE}"]}
        for n in range(6)
    ]
    file = folder / "q.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    config = {"dataset": {"name": "jsonl", "path": str(file), "split": "test"}}
    data = DATASETS.create("jsonl", path=str(file)).load("test").content_hash
    runs = [
        write_run(folder, "slow", answers(wall_ns=900), config=config, data=data),
        write_run(folder, "quick", answers(), config=config, data=data, is_lossless=False),
        write_run(folder, "dots", answers(is_traced=False), config=config, data=data),
    ]
    write_report(folder / "report.html", runs, [])
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser, report):
    """A fresh page; whatever it complains about or asks for fails the test."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri())
    yield page
    assert complaints == []
    assert {url for url in requests if not url.startswith("data:")} == {report.as_uri()}
    assert page.title() != "owned"
    page.close()


def methods(page):
    return page.locator("table.sortable").first.locator("tbody th").all_inner_texts()


def head(page, name):
    return page.locator("table.sortable").first.locator("th", has_text=name)


def test_a_click_sorts_by_numbers_and_a_second_one_turns_the_order(page):
    speedup = head(page, "speedup")
    speedup.get_by_role("button").click()
    assert methods(page)[-2:] == ["slow", "vanilla"]
    assert speedup.get_attribute("aria-sort") == "descending"
    speedup.get_by_role("button").click()
    # Vanilla has no speedup: empty cells stay last.
    assert [methods(page)[0], methods(page)[-1]] == ["slow", "vanilla"]
    assert speedup.get_attribute("aria-sort") == "ascending"


def test_the_keyboard_sorts_another_column(page):
    method = head(page, "method")
    method.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert methods(page) == ["dots", "quick", "slow", "vanilla"]
    head(page, "tok/s").get_by_role("button").press("Enter")
    assert methods(page)[-1] == "slow"
    assert method.get_attribute("aria-sort") == "none"


def test_another_prompt_and_run_change_the_view(page):
    assert page.locator(".prompt").inner_text() == f"question 0 {HOSTILE}"
    page.select_option("#prompt", label="p3 (x) ●")
    assert page.locator(".prompt").inner_text() == f"question 3 {HOSTILE}"
    page.select_option("#run", label="dots (d)")
    assert page.locator(".prompt").inner_text() == f"question 3 {HOSTILE}"
    assert page.locator("#answer").get_by_text("recorded no token texts").count() == 1
    assert page.locator("#answer .token").count() == 5


def test_hostile_texts_are_shown_as_text(page):
    assert page.locator("#answer .token").last.inner_text() == HOSTILE
    assert page.locator("img").count() == 0


def test_a_step_shows_its_tree(page):
    assert page.locator("#tree .node").count() == 5
    assert page.locator("#tree .node.kept").count() == 3
    assert page.locator("#tree-title").inner_text() == "Draft tree of step 1: 4 draft nodes"
    page.click("#next")
    assert page.locator("#tree .node").count() == 1
    assert page.locator("#step").inner_text() == "step 2 of 2"
    assert page.locator("#next").is_disabled()
    page.click("#previous")
    assert page.locator("#tree .node").count() == 5


def test_a_token_tells_where_it_comes_from(page):
    page.locator("#answer .token").nth(2).click()
    told = page.locator("#token-info").inner_text()
    assert told == "output token 3, step 1: kept as topk, from dynamic, regret 0.250 nats"
    token = page.locator("#answer .token").nth(2)
    assert token.locator("sup").inner_text() == "t"
    assert "dashed" in token.get_attribute("style")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_never_scrolls_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_can_be_printed(page):
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
