"""The page: whole, escaped, and in a browser free of errors and of requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fenchel.bench.record import Record
from fenchel.report.page import write_figures, write_report
from fenchel.report.results import read_results

MakeStore = Callable[..., Path]
EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&"
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture
def page(usual_records: list[Record], make_store: MakeStore, tmp_path: Path) -> Path:
    return write_report(read_results(make_store(usual_records)), tmp_path / "report.html")


@pytest.fixture
def evil_page(made: SimpleNamespace, make_store: MakeStore, tmp_path: Path) -> Path:
    """Names, losses, options and errors that are markup."""
    evil = {"data": EVIL, "architecture": EVIL, "loss": EVIL}
    records = [
        made.record(made.cell(method, shift, **evil))
        for method in ("bn", "conjugate")
        for shift in (EVIL, "fog")
    ]
    records.append(made.record(made.cell("conjugate", "$bad^{math", options={EVIL: EVIL}, **evil)))
    records.append(made.failed(made.cell("entropy", EVIL, **evil), EVIL))
    return write_report(read_results(make_store(records)), tmp_path / "evil.html")


def test_every_number_of_the_table_is_on_the_page(
    page: Path, usual_records: list[Record], make_store: MakeStore
) -> None:
    text = page.read_text(encoding="utf-8")
    (section,) = read_results(page.with_name("results.sqlite")).sections
    for name in section.table().rows:
        for cell in section.table().row(name):
            assert f">{cell}<" in text
    for record in usual_records:
        assert record.key[:12] in text
    assert text.count("<svg") == 3


def test_the_page_asks_for_nothing_from_outside(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text)
    assert "default-src 'none'" in text


def test_text_from_data_is_escaped(evil_page: Path) -> None:
    text = evil_page.read_text(encoding="utf-8")
    assert text.count("<script") == 1
    assert "<img" not in text
    assert "&lt;script&gt;" in text


def test_equal_stores_give_equal_pages(page: Path) -> None:
    again = write_report(read_results(page.with_name("results.sqlite")), page.with_name("b.html"))
    assert again.read_bytes() == page.read_bytes()


def test_failures_are_told_with_their_traceback(evil_page: Path) -> None:
    text = evil_page.read_text(encoding="utf-8")
    assert "1 failed" in text
    assert "Traceback: &lt;script&gt;" in text


def test_a_store_without_results_is_a_page_too(make_store: MakeStore, tmp_path: Path) -> None:
    page = write_report(read_results(make_store([])), tmp_path / "report.html")
    assert "Nothing has finished yet" in page.read_text(encoding="utf-8")


def test_figures_and_tables_are_written_in_every_format(
    usual_records: list[Record], make_store: MakeStore, tmp_path: Path
) -> None:
    written = write_figures(read_results(make_store(usual_records)), tmp_path / "figures")
    assert sorted({path.suffix for path in written}) == [
        ".csv", ".md", ".pdf", ".png", ".svg", ".tex",
    ]  # fmt: skip
    assert all(path.stat().st_size > 100 for path in written)


# --- in a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("there is no browser; install Debian's (apt-get install chromium)")
    # Root has no sandbox, and containers give shared memory too small for a page.
    flags = ["--no-sandbox", "--disable-dev-shm-usage"]
    with playwright.sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        yield started
        started.close()


class Watched:
    """A page in a browser with everything it complained about and asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.view = browser.new_page(**options)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.view.on("console", lambda message: self.complaints.append(message.text))
        self.view.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.view.on("request", lambda request: self.requests.append(request.url))
        self.view.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.view.goto(path.as_uri())

    def column(self, number: int) -> list[str]:
        script = "n => [...document.querySelector('table').tBodies[0].rows].map(r => r.cells[n].textContent)"
        found: list[str] = self.view.evaluate(script, number)
        return found


def test_a_browser_finds_no_error_and_asks_for_nothing(browser: Any, page: Path) -> None:
    watched = Watched(browser, page)
    assert watched.complaints == []
    assert watched.requests == [page.as_uri()]


def test_planted_scripts_do_not_run(browser: Any, evil_page: Path) -> None:
    watched = Watched(browser, evil_page)
    watched.view.wait_for_timeout(200)
    assert watched.complaints == []
    assert watched.requests == [evil_page.as_uri()]
    assert watched.view.title() != "owned"
    assert watched.view.evaluate("document.querySelectorAll('img').length") == 0


def test_a_click_on_a_heading_sorts_by_its_numbers(browser: Any, page: Path) -> None:
    watched = Watched(browser, page)
    button = watched.view.locator("table").first.locator("th button").nth(3)
    button.click()
    means = [float(text.split()[0]) for text in watched.column(3)]
    assert means == sorted(means)
    assert watched.column(0) == ["conjugate", "entropy", "bn", "source"]
    button.click()
    assert watched.column(0) == ["source", "bn", "entropy", "conjugate"]
    watched.view.locator("table").first.locator("th button").first.click()
    assert watched.column(0) == ["bn", "conjugate", "entropy", "source"]
    assert watched.complaints == []


def test_numbers_sort_as_numbers_and_gaps_go_last(
    browser: Any, made: SimpleNamespace, make_store: MakeStore, tmp_path: Path
) -> None:
    rates = {"bn": 0.9, "entropy": 0.05, "conjugate": 1.0}
    records = [made.record(made.cell(name, "fog"), rate) for name, rate in rates.items()]
    records.append(made.record(made.cell("source", "snow"), 0.5))
    path = write_report(read_results(make_store(records)), tmp_path / "report.html")
    watched = Watched(browser, path)
    watched.view.locator("table").first.locator("th button").nth(2).click()
    assert watched.column(0) == ["entropy", "bn", "conjugate", "source"]
    watched.view.locator("table").first.locator("th button").nth(2).click()
    assert watched.column(0) == ["conjugate", "bn", "entropy", "source"]


def test_the_page_fits_a_phone(browser: Any, page: Path) -> None:
    watched = Watched(browser, page, viewport={"width": 360, "height": 700})
    width = watched.view.evaluate("document.documentElement.scrollWidth")
    assert width <= 360


def test_dark_mode_is_dark_and_readable(browser: Any, page: Path) -> None:
    watched = Watched(browser, page, color_scheme="dark")
    script = "(p => JSON.stringify([p.backgroundColor, p.color]))(getComputedStyle(document.body))"
    paper, ink = (
        sum(map(int, re.findall(r"\d+", color)))
        for color in json.loads(watched.view.evaluate(script))
    )
    assert paper < 150
    assert ink > 600
