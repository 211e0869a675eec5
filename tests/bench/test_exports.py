"""Exports: the same bytes for the same results, and all that a store needs to continue."""

import csv
import dataclasses
import io
import json
import math

import pytest

from fenchel.bench.driver import run_plan
from fenchel.bench.executors import make_executor
from fenchel.bench.exports import as_csv, as_json, columns, import_file, packed
from fenchel.bench.plan import make_plan
from fenchel.bench.record import Record
from fenchel.bench.store import Store


@pytest.fixture
def plan(make_sweep):
    return make_plan(make_sweep())


@pytest.fixture
def results(tmp_path, plan):
    """A store with real results, a failure whose text is nasty, and a loss that is no number."""
    with Store(tmp_path / "results.sqlite") as store, make_executor("serial") as executor:
        store.add_plan(plan)
        run_plan(dataclasses.replace(plan, jobs=plan.jobs[:-2], requests=()), store, executor)
        nasty = 'ValueError: "quoted", comma,\r\nsecond line; =1+1 é'
        failed = Record(cell=plan.jobs[-2].cell, status="failed", error=nasty, traceback="T\n")
        odd = Record(
            cell=plan.jobs[-1].cell, status="done", samples=3, batch_task_losses=(1.5, math.inf)
        )
        store.add_record(failed)
        store.add_record(odd)
        yield store


def test_the_csv_holds_a_row_a_record_and_no_times(results, plan):
    rows = list(csv.DictReader(io.StringIO(as_csv(results), newline="")))
    assert len(rows) == len(plan.jobs)
    assert tuple(rows[0]) == columns()
    assert not {"timings", "peak_memory", "traceback"} & set(rows[0])
    assert {row["key"] for row in rows} == set(plan.keys)
    for row in rows:
        if row["status"] == "done" and int(row["wrong"]):
            error = 100 * int(row["wrong"]) / int(row["samples"])
            assert float(row["error_percent"]) == pytest.approx(error, abs=1e-5)


def test_timings_add_the_rest(results):
    assert columns(timings=True) == (*columns(), "timings", "peak_memory", "traceback")
    rows = json.loads(as_json(results, timings=True))["records"]
    assert all(row["timings"]["seconds"] > 0 for row in rows if row["batch_wrong"])


@pytest.mark.parametrize("write", [as_csv, as_json])
@pytest.mark.parametrize("timings", [False, True])
def test_a_store_continues_from_an_export_without_loss(results, tmp_path, write, timings):
    text = write(results, timings=timings)
    file = tmp_path / "export"
    file.write_bytes(text.encode())
    count = len(list(results.records()))
    with Store(tmp_path / "again.sqlite") as again:
        assert import_file(again, file) == (count, 0)
        assert import_file(again, file) == (0, count)
        assert write(again, timings=timings) == text
        assert again.requests() == {
            key: names for key, names in results.requests().items() if key in again.statuses()
        }


def test_a_sweep_goes_on_after_an_import(results, tmp_path, plan):
    file = tmp_path / "export.csv"
    file.write_bytes(as_csv(results).encode())
    with Store(tmp_path / "again.sqlite") as again, make_executor("serial") as executor:
        import_file(again, file)
        summary = run_plan(plan, again, executor)
    assert (summary.ran, summary.failed, summary.done) == (0, 1, len(plan.jobs) - 1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(",conjugate,", ",hard,"),
        lambda text: text.replace("model_digest", "digest"),
        lambda text: text[: len(text) // 2].rpartition(",")[0],
        lambda text: "nonsense",
        lambda text: '{"format": "other"}',
        lambda text: "[1, 2]",
    ],
    ids=["edited", "column", "cut", "nonsense", "other", "list"],
)
def test_an_export_that_was_edited_or_cut_is_refused_whole(results, tmp_path, spoil):
    file = tmp_path / "export.csv"
    file.write_bytes(spoil(as_csv(results)).encode())
    with Store(tmp_path / "again.sqlite") as again:
        with pytest.raises(ValueError, match="an export is a CSV or JSON file"):
            import_file(again, file)
        assert again.counts().planned == 0


@pytest.mark.parametrize("write", [as_csv, as_json])
def test_compressed_exports_are_a_third_as_large_and_the_same_each_time(results, tmp_path, write):
    text, file = write(results), tmp_path / "export.gz"
    file.write_bytes(packed(text, file))
    assert packed(text, file) == file.read_bytes()
    assert packed(text, "export.csv") == text.encode()
    assert file.stat().st_size < len(text.encode()) / 3
    with Store(tmp_path / "again.sqlite") as again:
        import_file(again, file)
        assert write(again) == text


@pytest.mark.parametrize("cut", [5, 60])
def test_a_compressed_export_that_was_cut_is_refused(results, tmp_path, cut):
    file = tmp_path / "export.csv.gz"
    file.write_bytes(packed(as_csv(results), file)[:cut])
    with (
        Store(tmp_path / "again.sqlite") as again,
        pytest.raises(ValueError, match="an export is a CSV or JSON file"),
    ):
        import_file(again, file)


def test_a_missing_export_is_told(results, tmp_path):
    with pytest.raises(FileNotFoundError, match="no export"):
        import_file(results, tmp_path / "nothing.csv")
