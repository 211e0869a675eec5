"""The page: whole, escaped, and in a browser free of errors and of requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fenchel.bench.record import Record
from fenchel.report.page import colors_of, figures_of, write_figures, write_report
from fenchel.report.results import read_results

MakeStore = Callable[..., Path]
EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def page(
    usual_records: tuple[Record, ...],
    made: SimpleNamespace,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The page of usual results, which lie beside it; tests read it and leave it as it is."""
    store = made.store_in(tmp_path_factory.mktemp("page"), usual_records)
    return write_report(read_results(store), store.with_name("report.html"))


@pytest.fixture(scope="module")
def evil_page(made: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names, losses, options and errors that are markup."""
    evil = {"data": EVIL, "architecture": EVIL, "loss": EVIL}
    records = [
        made.record(made.cell(method, shift, **evil))
        for method in ("bn", "conjugate")
        for shift in (EVIL, "fog")
    ]
    records.append(made.record(made.cell("conjugate", "$bad^{math", options={EVIL: EVIL}, **evil)))
    records.append(made.failed(made.cell("entropy", EVIL, **evil), EVIL))
    store = made.store_in(tmp_path_factory.mktemp("evil"), records)
    return write_report(read_results(store), store.with_name("evil.html"))


def test_every_number_of_the_table_is_on_the_page(
    page: Path, usual_records: tuple[Record, ...]
) -> None:
    text = page.read_text(encoding="utf-8")
    (section,) = read_results(page.with_name("results.sqlite")).sections
    for name in section.table().rows:
        for cell in section.table().row(name):
            assert f">{cell}<" in text
    for record in usual_records:
        assert record.key[:12] in text
    assert text.count("<svg") == 2 * 3  # for wide pages and for narrow ones


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
    usual_records: tuple[Record, ...], make_store: MakeStore, tmp_path: Path
) -> None:
    written = write_figures(read_results(make_store(usual_records)), tmp_path / "figures")
    assert sorted({path.suffix for path in written}) == [
        ".csv", ".md", ".pdf", ".png", ".svg", ".tex",
    ]  # fmt: skip
    assert all(path.stat().st_size > 100 for path in written)


# --- in a browser ------------------------------------------------------------------------------


def test_a_browser_finds_no_error_and_asks_for_nothing(open_page: Any, page: Path) -> None:
    watched = open_page(page)
    assert watched.complaints == []
    assert watched.requests == [page.as_uri()]


def test_planted_scripts_do_not_run(open_page: Any, evil_page: Path) -> None:
    watched = open_page(evil_page)
    watched.view.wait_for_timeout(200)
    assert watched.complaints == []
    assert watched.requests == [evil_page.as_uri()]
    assert watched.view.title() != "owned"
    assert watched.view.evaluate("document.querySelectorAll('img').length") == 0


def column(watched: Any, number: int) -> list[str]:
    script = (
        "n => [...document.querySelector('table').tBodies[0].rows].map(r => r.cells[n].textContent)"
    )
    found: list[str] = watched.view.evaluate(script, number)
    return found


def test_a_click_on_a_heading_sorts_by_its_numbers(open_page: Any, page: Path) -> None:
    watched = open_page(page)
    button = watched.view.locator("table").first.locator("th button").nth(3)
    button.click()
    means = [float(text.split()[0]) for text in column(watched, 3)]
    assert means == sorted(means)
    assert column(watched, 0) == ["conjugate", "entropy", "bn", "source"]
    button.click()
    assert column(watched, 0) == ["source", "bn", "entropy", "conjugate"]
    watched.view.locator("table").first.locator("th button").first.click()
    assert column(watched, 0) == ["bn", "conjugate", "entropy", "source"]
    assert watched.complaints == []


def test_numbers_sort_as_numbers_and_gaps_go_last(
    open_page: Any, made: SimpleNamespace, make_store: MakeStore, tmp_path: Path
) -> None:
    rates = {"bn": 0.9, "entropy": 0.05, "conjugate": 1.0}
    records = [made.record(made.cell(name, "fog"), rate) for name, rate in rates.items()]
    records.append(made.record(made.cell("source", "snow"), 0.5))
    path = write_report(read_results(make_store(records)), tmp_path / "report.html")
    watched = open_page(path)
    watched.view.locator("table").first.locator("th button").nth(2).click()
    assert column(watched, 0) == ["entropy", "bn", "conjugate", "source"]
    watched.view.locator("table").first.locator("th button").nth(2).click()
    assert column(watched, 0) == ["conjugate", "bn", "entropy", "source"]


def test_what_is_cut_or_too_small_is_found(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><main><p style='width:50px;overflow:hidden;white-space:nowrap'>cut words here</p>"
        "<p style='font-size:9px'>tiny</p><p style='white-space:nowrap'>" + "wide" * 99 + "</p>"
        "<svg viewBox='0 0 99 9' width='99'><text x='90' y='8' font-size='5'>beyond</text></svg>"
    )
    faults = open_page(path, viewport={"width": 390, "height": 800}).faults()
    for words in ("the page is", "cut: P", "small letters: P", "outside the window: P"):
        assert any(fault.startswith(words) for fault in faults), words
    assert any("beyond" in fault and fault.startswith("cut by") for fault in faults)
    assert any("beyond" in fault and fault.startswith("letters of 5.0") for fault in faults)


def test_nothing_is_cut_on_a_phone_or_a_screen(
    open_page: Any, made: SimpleNamespace, make_store: MakeStore, tmp_path: Path
) -> None:
    long = "a_shift_with_a_name_" * 4
    records = [
        made.record(made.cell(method, shift, severity, seed=seed, learning_rate=rate))
        for method, rate in (("bn", None), ("entropy", 0.1), ("conjugate", 0.1), ("conjugate", 1.0))
        for shift, severity in (("fog", 3), ("fog", 5), ("elastic_transform", 5), (long, 5))
        for seed in (0, 1)
    ]
    records.append(made.failed(made.cell("entropy", "fog", seed=9), "x" * 300))
    path = write_report(read_results(make_store(records)), tmp_path / "report.html")
    for width in (390, 1200):
        assert open_page(path, viewport={"width": width, "height": 800}).faults() == []


def test_a_row_has_one_colour_in_all_figures_and_tables(
    made: SimpleNamespace, make_store: MakeStore, tmp_path: Path
) -> None:
    """The source has no curves, and each section its own rows: no position is the same everywhere."""
    records = [
        made.record(made.cell(method, shift, data=data, learning_rate=rate))
        for data, rates in (("digits", (0.1, 1.0)), ("letters", (0.5, 1.0, 0.1)))
        for method in ("source", "conjugate")
        for rate in (rates if method == "conjugate" else (None,))
        for shift in ("fog", "snow")
    ]
    results = read_results(make_store(records))
    colors = colors_of(results)
    assert len(set(colors.values())) == len(colors) == 4
    text = write_report(results, tmp_path / "report.html").read_text(encoding="utf-8")
    for name, color in colors.items():
        swatches = re.findall(rf'style="background:(#\w+)"></i>{name}<', text)
        assert set(swatches) == {color}
    for section in results.sections:
        for item in figures_of(section, colors):
            assert drawn_colors(item.draw()).items() <= colors.items()


def drawn_colors(figure: Figure) -> dict[str, str]:
    """The colour of every name in the legend."""
    (legend,) = figure.legends
    return {
        text.get_text(): to_hex((artist[0] if isinstance(artist, tuple) else artist).get_color())
        for text, artist in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }


def test_dark_mode_is_dark_and_readable(open_page: Any, page: Path) -> None:
    watched = open_page(page, color_scheme="dark")
    script = "(p => JSON.stringify([p.backgroundColor, p.color]))(getComputedStyle(document.body))"
    paper, ink = (
        sum(map(int, re.findall(r"\d+", color)))
        for color in json.loads(watched.view.evaluate(script))
    )
    assert paper < 150
    assert ink > 600
