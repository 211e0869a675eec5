"""Every number on a page is bound to its own cell, and the tests notice one that is not."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from documented_numbers import Typed, complaints, prose, typed_pages
from documented_text import ROOT
from typed_numbers import BOUND

RESULTS, BENCHMARKS = ROOT / "results", ROOT / "benchmarks"


def script(folder: Path, name: str) -> ModuleType:
    """A script of a folder, which finds the others beside it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def generated() -> dict[Path, str]:
    """Every page that is made of results, as they make it."""
    page = script(BENCHMARKS, "page")
    performance = ROOT / "docs" / "performance.md"
    numbers, errors = page.read_results(BENCHMARKS / "results"), RESULTS / "less-work.csv"
    text = page.filled(performance.read_text(encoding="utf-8"), numbers, page.errors(errors))
    return {**script(RESULTS, "publish").pages(), performance: text}


def with_another_digit(text: str, number: str) -> str:
    """The text with the last digit of a number changed, where the number is first."""
    other = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert number in text
    return text.replace(number, other, 1)


def test_the_pages_are_byte_for_byte_what_their_cells_make_of_them() -> None:
    pages = generated()
    assert {page.name for page in pages} == {
        "results.md",
        "README.md",
        "performance.md",
        "safety.md",
        "settings.md",
    }
    for page, text in pages.items():
        command = "make bench" if page.name == "performance.md" else "make results"
        assert page.read_bytes() == text.encode(), f"{page.name} is not what `{command}` writes"


def test_every_number_that_was_typed_is_bound_to_its_cell() -> None:
    assert complaints(typed_pages(), BOUND) == []


def test_no_expression_of_a_template_is_a_number_that_was_typed() -> None:
    for page, text in typed_pages().items():
        for expression in re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL):
            assert re.match(r" *[a-z_]+(?:\(| *\}?$)", expression), f"{page}: {expression}"


def test_every_bound_number_is_on_a_page_that_is_read() -> None:
    assert {typed.page for typed in BOUND} <= typed_pages().keys()


MADE = {
    "results.md": "",
    "README.md": "<!-- headline:",
    "performance.md": "<!-- measured: step",
    "safety.md": "<!-- protection:",
    "settings.md": "<!-- settings:",
}
"""Where on a page begins what a program writes."""


@pytest.mark.parametrize("name", MADE)
def test_one_digit_changed_in_a_copy_of_a_page_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, publish = script(BENCHMARKS, "page"), script(RESULTS, "publish")
    original = ROOT / name if name == "README.md" else ROOT / "docs" / name
    text = original.read_text(encoding="utf-8")
    begin = text.index(MADE[name])
    number = re.findall(r"\d+\.\d+", text[begin:])[0]
    copy = tmp_path / original.relative_to(ROOT)
    (tmp_path / "docs").mkdir()
    for other in ("README.md", "docs/safety.md", "docs/settings.md"):
        (tmp_path / other).touch()
    copy.write_text(text[:begin] + with_another_digit(text[begin:], number), encoding="utf-8")
    if name == "performance.md":
        numbers, errors = page.read_results(BENCHMARKS / "results"), RESULTS / "less-work.csv"
        made = page.filled(copy.read_text(encoding="utf-8"), numbers, page.errors(errors))
    else:
        monkeypatch.setattr(publish, "ROOT", tmp_path)
        monkeypatch.setattr(publish, "DOCS", tmp_path / "docs")
        made = publish.pages()[copy]
    assert made == text
    assert copy.read_bytes() != made.encode()


@pytest.mark.parametrize("typed", BOUND, ids=lambda typed: f"{typed.page}-{typed.piece}")
def test_one_digit_changed_in_a_number_that_was_typed_is_refused(typed: Typed) -> None:
    text = prose(typed_pages()[typed.page])
    begin = text.index(re.sub(r"[{}]", "", typed.piece))
    for number in typed.numbers:
        changed = text[:begin] + with_another_digit(text[begin:], number)
        assert complaints({typed.page: changed}, BOUND)


@pytest.mark.parametrize("typed", BOUND, ids=lambda typed: f"{typed.page}-{typed.piece}")
def test_a_number_changed_in_the_table_as_well_is_refused_by_its_cell(typed: Typed) -> None:
    text = prose(typed_pages()[typed.page])
    plain = re.sub(r"[{}]", "", typed.piece)
    for number in typed.numbers:
        braced, other = f"{{{number}}}", with_another_digit(number, number)
        table = Typed(typed.page, typed.piece.replace(braced, f"{{{other}}}", 1), typed.behind)
        new = re.sub(r"[{}]", "", table.piece)
        wrong = table.complaints(text.replace(plain, new))
        assert any(f"says {other}" in complaint for complaint in wrong)


@pytest.mark.parametrize(
    "sentence",
    [
        "It is 1.3 times as fast.",
        "The error falls to 23.57 %.",
        "It takes 4 seconds, or 12 % of the time.",
        "The rate was 0.077.",
        "At rates 0.1 and 0.077 it breaks down.",
        "It ends at 0.1 %.",
    ],
)
def test_a_new_number_that_nothing_vouches_for_is_refused(sentence: str) -> None:
    assert complaints({"README.md": sentence}, [])
    assert complaints({"results/templates/new.md": sentence}, [])


def test_on_other_pages_than_those_of_results_a_setting_needs_a_cell_as_well() -> None:
    assert complaints({"README.md": "It stands at 0.5."}, [])


def test_settings_code_and_generated_places_need_no_cell() -> None:
    text = (
        "At rate 0.1 and temperature 1.5, with momentum 0.9, `x = 0.77`, a 95 % interval.\n"
        "<!-- measured: step -->\n| 0.123 |\n<!-- end -->\n{{ trial(0.456) }} % [page](a-1.5.md)\n"
    )
    assert complaints({"results/templates/new.md": text}, []) == []
