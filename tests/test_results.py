"""What is published was measured: pages come from the CSV files, and so does every number on them."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

DECIMAL = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d+)\.\d+(?![\w.]|-\d)")
NOT_PROSE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)

SETTINGS = {
    "data.md": {"0.05", "0.1"},  # concentrations
    "reports.md": {
        "0.6",
        "0.65",
        "0.7",
        "0.01",
        "0.02",
        "0.9",
    },  # shifts and rates of the Gaussians
    "meta.md": {"0.01", "0.001"},  # rates
    "results.md": {"0.9", "0.6", "0.65", "0.7"},  # momentum, shifts of the Gaussians
    "training.md": {
        *("0.1", "0.01", "0.2", "0.9"),  # rates and momentum
        *("0.37", "11.2", "23.5", "11.7", "25.6", "2.7", "0.09"),  # millions of parameters
    },
}
"""Decimals that are no measurements: constants of methods, recipes and protocols, by page."""


def script(name: str) -> ModuleType:
    """A script of the folder, which finds the others beside it."""
    if str(RESULTS) not in sys.path:
        sys.path.insert(0, str(RESULTS))
    return importlib.import_module(name)


def decimals_of(page: Path) -> list[str]:
    """Numbers with a decimal point outside of code and links."""
    found = DECIMAL.findall(NOT_PROSE.sub(" ", page.read_text(encoding="utf-8")))
    return [number.replace(",", "") for number in found]


@cache
def measured() -> frozenset[str]:
    """Every number in the published files, as it looks with up to four digits behind the point."""
    found: set[str] = set()
    for value in _values():
        for digits in range(1, 5):
            found.add(f"{abs(value):.{digits}f}")
    return frozenset(found)


def _values() -> Iterator[float]:
    for file in RESULTS.glob("*.csv"):
        if file.name.startswith("cells-"):
            continue  # what is shown of them is in the tables
        with file.open(newline="", encoding="utf-8") as opened:
            for row in csv.reader(opened):
                for field in row:
                    try:
                        yield float(field)
                    except ValueError:
                        continue
    for file in (ROOT / "benchmarks" / "results").glob("*.json"):
        for value in map(float, re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", file.read_text())):
            yield value
            yield value / 2**20  # bytes are shown in MiB


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_measured_number_on_a_page_is_in_the_results(page: Path) -> None:
    unknown = set(decimals_of(page)) - measured() - SETTINGS.get(page.name, set())
    assert not unknown


def test_the_pages_are_what_the_results_make_of_the_templates() -> None:
    for file, text in script("publish").pages().items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name}: run `make results`"


def test_tables_are_made_of_the_published_cells_and_the_networks_of_the_zoo() -> None:
    made = script("collecting").derived()
    for file, text in made.items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name}: run `make results`"
    names = {file.stem for file in made}
    assert {"sources", "tuning", "online", "digits"} < names
    assert {file.stem for file in RESULTS.glob("table-*.csv")} < names


def test_only_files_that_differ_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = script("publish")
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    same, other = tmp_path / "same.csv", tmp_path / "other.csv"
    same.write_text("a,b\n", encoding="utf-8")
    before = same.stat()
    publish.write_changed({same: "a,b\n", other: "c\n"})
    assert (same.stat().st_mtime_ns, same.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert other.read_text(encoding="utf-8") == "c\n"


def test_published_cells_name_no_place_of_a_machine() -> None:
    for file in RESULTS.glob("cells-*.csv"):
        csv.field_size_limit(2**31 - 1)
        with file.open(newline="", encoding="utf-8") as opened:
            places = {row["checkpoint"] for row in csv.DictReader(opened)}
        assert places
        assert all(place.startswith("zoo:") for place in places), file.name
