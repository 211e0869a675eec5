"""What is published was measured: the tables come from the published cells.

That the pages come from the tables, and every number on them from its own cell, is tested in
tests/documentation/test_numbers.py.
"""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


def script(name: str) -> ModuleType:
    """A script of the folder, which finds the others beside it."""
    if str(RESULTS) not in sys.path:
        sys.path.insert(0, str(RESULTS))
    return importlib.import_module(name)


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
        assert all(place.startswith(("zoo:", "pretrained:")) for place in places), file.name
