"""What is published was measured: the tables come from the published cells.

That the pages come from the tables, and every number on them from its own cell, is tested in
tests/documentation/test_numbers.py.
"""

from __future__ import annotations

import csv
import importlib
import io
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fenchel.bench.exports import unpacked
from fenchel.paper.claims import Evidence, judge

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
    for file in RESULTS.glob("**/cells-*.csv.gz"):
        csv.field_size_limit(2**31 - 1)
        rows = csv.DictReader(io.StringIO(unpacked(file), newline=""))
        places = {row["checkpoint"] for row in rows}
        assert places
        assert all(place.startswith(("zoo:", "pretrained:")) for place in places), file.name


def claims_with_evidence() -> list[tuple[Any, list[Any]]]:
    """The claims of the paper that were put to the test, and their comparisons."""
    found = script("verdicts")._compared()
    return [(claim, evidence) for claim, evidence in found if evidence]


def test_every_claim_names_what_is_published_and_twenty_have_a_verdict() -> None:
    told = [row for row in script("reading").rows_of("claims") if row["verdict"] != "not run"]
    assert len(told) == len(claims_with_evidence()) >= 20
    assert {row["verdict"] for row in told} <= {"confirmed", "not told apart", "contradicted"}


def test_comparisons_behind_claims_are_those_of_the_tables() -> None:
    """The conjugate against others on one line: the tables have the same differences."""
    reading, compared = script("reading"), 0
    for claim, evidence in claims_with_evidence():
        facts = claim.facts
        if (
            claim.by == "cells"
            and facts["methods"] == ["conjugate"]
            and "against_table" not in facts
        ):
            pairs = [(line, other) for line in facts["lines"] for other in facts.get("against", ())]
            for (line, other), found in zip(pairs, evidence, strict=False):
                row = reading.row_of(facts["table"], line, other)
                assert found.estimate == pytest.approx(float(row["minus_conjugate"]))
                images, streams = found.intervals
                assert images == pytest.approx((float(row["low"]), float(row["high"])))
                lowest = row["streams_low"] or "-inf"  # one stream has no interval
                assert streams[0] == pytest.approx(float(lowest))
                compared += 1
    assert compared > 30


def test_a_claim_turned_around_gets_the_opposite_verdict() -> None:
    given = [(claim, found) for claim, found in claims_with_evidence() if claim.kind == "ahead"]
    turned = [
        (claim, [_turned(each) for each in found if each.p_value < 1]) for claim, found in given
    ]
    for before, after in zip(judge(given), judge(turned), strict=True):
        if before.word == "confirmed":
            assert after.word == "contradicted"
        assert after.word != "confirmed" or before.word == "contradicted"


def _turned(evidence: Evidence) -> Evidence:
    intervals = tuple((-high, -low) for low, high in evidence.intervals)
    return replace(evidence, estimate=-evidence.estimate, intervals=intervals)


def test_the_published_results_stay_small() -> None:
    assert sum(file.stat().st_size for file in RESULTS.rglob("*") if file.is_file()) < 15e6
