"""The demo runs, its numbers are consistent, and its page stands alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fenchel.data import Dataset, from_arrays
from fenchel.demo import experiment, run, write_page
from fenchel.demo.experiment import SHIFTS
from fenchel.demo.page import table_of

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The demo with one seed, on every third digit."""
    halves = experiment._halves

    def with_fewer_targets(digits: Dataset) -> tuple[Dataset, Dataset]:
        source, target = halves(digits)
        rows = np.arange(0, len(target), 3)
        images, labels = target.images(rows), target.labels[rows]
        return source, from_arrays("digits", images, labels, classes=target.classes, split="test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "_halves", with_fewer_targets)
        return run(tmp_path_factory.mktemp("demo"), seeds=[0])


def test_every_method_is_measured_on_every_shift(outcome) -> None:  # type: ignore[no-untyped-def]
    expected = {(method, shift) for method in outcome.methods for shift, _ in SHIFTS}
    assert set(outcome.errors) == expected
    assert all(0 <= value <= 100 for values in outcome.errors.values() for value in values)


def test_the_network_has_learnt_the_digits(outcome) -> None:  # type: ignore[no-untyped-def]
    assert outcome.clean_errors[0] < 6


def test_the_last_point_of_a_curve_is_the_error(outcome) -> None:  # type: ignore[no-untyped-def]
    for key, curves in outcome.curves.items():
        assert [curve[-1] for curve in curves] == outcome.errors[key]


def test_the_source_suffers_from_the_shifts(outcome) -> None:  # type: ignore[no-untyped-def]
    assert table_of(outcome).row("source")[-1].mean > outcome.clean_errors[0] + 10


def test_the_page_stands_alone_and_holds_every_number(outcome, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = write_page(outcome, tmp_path).read_text(encoding="utf-8")
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?https?:", page)
    table = table_of(outcome)
    for name in table.rows:
        for cell in table.row(name):
            assert f">{cell}<" in page
    assert page.count("<img") == len(SHIFTS) + 1


def test_nothing_of_the_page_is_cut(open_page, outcome, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = write_page(outcome, tmp_path)
    for width in (390, 1200):
        assert open_page(page, viewport={"width": width, "height": 800}).faults() == []
