"""Records become sections, rows and columns; aliases share a record; differences are paired."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fenchel.bench.plan import Request
from fenchel.bench.record import CellShift, Record
from fenchel.report.listings import (
    errors_csv,
    numbers_table,
    protocol_of,
    significance_csv,
    significance_table,
)
from fenchel.report.results import read_results, sections_of, shift_errors

MakeStore = Callable[..., Path]


def test_a_section_is_one_model_on_one_data_set(made: SimpleNamespace) -> None:
    cells = [
        made.cell("bn", "fog"),
        made.cell("bn", "snow"),
        made.cell("bn", "fog", loss="cross-entropy"),
        made.cell("bn", "fog", limit=100),
    ]
    sections = sections_of(map(made.record, cells), {})
    assert [len(section.records) for section in sections] == [2, 1, 1]
    titles = [section.title for section in sections]
    assert titles == [
        "digits, network trained with poly:epsilon=6, limit None",
        "digits, network trained with cross-entropy",
        "digits, network trained with poly:epsilon=6, limit 100",
    ]


def test_two_models_of_one_kind_are_told_apart_by_name(made: SimpleNamespace) -> None:
    cells = [
        made.cell("bn", "fog", model_digest=digit * 64, checkpoint=f"runs/{digit}")
        for digit in "ab"
    ]
    titles = [section.title for section in sections_of(map(made.record, cells), {})]
    assert titles[0].endswith("model runs/a aaaaaaaa")
    assert titles[1].endswith("model runs/b bbbbbbbb")


def test_the_table_holds_the_records_errors_seed_by_seed(usual_records: tuple[Record, ...]) -> None:
    (section,) = sections_of(usual_records, {})
    table = section.table()
    assert table.rows == ("source", "bn", "entropy", "conjugate")
    assert table.columns == ("snow", "fog")
    expected = [
        r.error_percent
        for r in usual_records
        if r.cell.method == "bn" and r.cell.shifts[0].name == "fog"
    ]
    assert list(table.cells["bn", "fog"].values) == expected
    assert table.best()[-1] == {"conjugate"}


def test_several_severities_become_the_columns(made: SimpleNamespace) -> None:
    records = [
        made.record(made.cell("bn", shift, severity), rate)
        for shift, rate in (("fog", 0.2), ("snow", 0.4))
        for severity in (1, 5)
    ]
    (section,) = sections_of(records, {})
    assert section.table().columns == ("severity 1", "severity 5")
    assert section.corruption_table().columns == ("snow", "fog")
    mean = np.mean([records[0].error_percent, records[2].error_percent])
    assert section.by_severity()["bn", 1].values == (mean,)


def test_a_cell_asked_for_by_two_names_has_two_rows(
    made: SimpleNamespace, make_store: MakeStore
) -> None:
    shared = made.record(made.cell("conjugate", "fog", loss="cross-entropy"))
    path = make_store([shared], [Request(shared.key, "entropy"), Request(shared.key, "soft")])
    (section,) = read_results(path).sections
    table = section.table()
    assert table.rows == ("entropy", "soft", "conjugate")
    assert len({table.cells[row, "fog"].values for row in table.rows}) == 1
    assert len(section.records) == 1
    assert numbers_table(read_results(path)).rows[0][2].text == "conjugate = entropy = soft"


def test_labels_tell_ways_of_one_method_apart_by_what_differs(made: SimpleNamespace) -> None:
    records = [made.record(made.cell("conjugate", "fog", temperature=t)) for t in (1.0, 2.0)]
    records.append(made.record(made.cell("bn", "fog")))
    (section,) = sections_of(records, {})
    assert list(section.configurations) == ["bn", "conjugate, T 1", "conjugate, T 2"]


def test_heat_maps_need_a_grid_and_leave_out_unfinished_points(made: SimpleNamespace) -> None:
    def at(rate: float, temperature: float, shift: str) -> Record:
        made_cell = made.cell("conjugate", shift, learning_rate=rate, temperature=temperature)
        found: Record = made.record(made_cell)
        return found

    grid = [(r, t) for r in (0.1, 0.01) for t in (1.0, 2.0)]
    records = [at(*point, shift) for point in grid for shift in ("fog", "snow")]
    (section,) = sections_of(records, {})
    assert set(section.heat_maps()["conjugate, sgd"]) == set(grid)
    (section,) = sections_of(records[:-1], {})
    assert set(section.heat_maps()["conjugate, sgd"]) == set(grid[:-1])
    (section,) = sections_of(records[:4], {})
    assert section.heat_maps() == {}


def test_a_stream_of_many_shifts_is_scored_shift_by_shift(made: SimpleNamespace) -> None:
    shifts = tuple(
        CellShift(name=name, severity=5, dataset="digits", split="test", digest="d")
        for name in ("fog", "snow")
    )
    record = made.record(made.cell("bn", "fog", shifts=shifts, setting="continual"))
    errors = shift_errors(record)
    assert errors["fog", 5] == 100 * record.shift_wrong[0] / record.shift_samples[0]
    assert np.mean(list(errors.values())) == pytest.approx(record.error_percent)
    (section,) = sections_of([record], {})
    assert section.table().columns == ("snow", "fog")
    assert section.title.endswith(", continual")


def test_differences_are_the_differences_of_the_means(usual_records: tuple[Record, ...]) -> None:
    (section,) = sections_of(usual_records, {})
    table = section.table()
    for label, difference in section.differences("conjugate").items():
        expected = table.row(label)[-1].mean - table.row("conjugate")[-1].mean
        assert difference.estimate == pytest.approx(expected)
        assert difference.images == 200
        assert difference.low > 0
    layout = significance_table(section, "conjugate")
    assert layout is not None
    assert [row[0].text for row in layout.rows] == ["source", "bn", "entropy"]
    assert significance_table(section, "memo") is None


def test_seeds_with_subsets_of_their_own_are_not_taken_for_the_same_images(
    made: SimpleNamespace,
) -> None:
    records = [
        made.record(made.cell(method, shift, seed=seed, limit=200))
        for method in ("bn", "conjugate")
        for shift in ("fog", "snow")
        for seed in (0, 1)
    ]
    (section,) = sections_of(records, {})
    assert section.differences("conjugate")["bn"].images == 400


def test_csv_holds_the_same_numbers_as_the_tables(
    usual_records: tuple[Record, ...], make_store: MakeStore
) -> None:
    results = read_results(make_store(usual_records))
    (section,) = results.sections
    errors = list(csv.DictReader(errors_csv(results).splitlines()))
    assert len(errors) == 4 * 3
    means = {row["method"]: float(row["mean"]) for row in errors if row["shift"] == "mean"}
    assert means["bn"] == section.table().row("bn")[-1].mean
    tests = {
        row["method"]: row for row in csv.DictReader(significance_csv(results, "bn").splitlines())
    }
    assert set(tests) == {"source", "entropy", "conjugate"}
    assert float(tests["source"]["difference"]) == section.differences("bn")["source"].estimate
    assert tests["source"]["reference"] == "bn"


def test_failures_are_kept_apart(made: SimpleNamespace, make_store: MakeStore) -> None:
    good, bad = made.cell("bn", "fog"), made.cell("bn", "snow")
    results = read_results(make_store([made.record(good), made.failed(bad, "no memory")]))
    assert [record.key for record in results.failures] == [bad.key]
    assert results.sections[0].table().columns == ("fog",)
    assert (results.counts.done, results.counts.failed) == (1, 1)


def test_the_protocol_tells_model_stream_seeds_and_versions(
    usual_records: tuple[Record, ...],
) -> None:
    (section,) = sections_of(usual_records, {})
    protocol = protocol_of(section)
    assert "poly:epsilon=6" in protocol["model"]
    assert protocol["stream"] == "reset, shuffled order, batches of 50"
    assert protocol["seeds"] == "0, 1"
    assert protocol["versions"] == "torch 2"
