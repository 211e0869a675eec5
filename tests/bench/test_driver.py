"""The driver: failures are records, drivers share a store, and nothing is run twice."""

import dataclasses
import threading
import time

import pytest

from fenchel.bench.driver import run_plan
from fenchel.bench.estimate import estimate
from fenchel.bench.executors import make_executor
from fenchel.bench.executors.base import Executor
from fenchel.bench.executors.serial import Serial
from fenchel.bench.plan import make_plan
from fenchel.bench.record import Record
from fenchel.bench.running import run_job
from fenchel.bench.sources import ModelSource
from fenchel.bench.store import Store
from fenchel.bench.watching import LiveWatcher, PlainWatcher


@pytest.fixture
def plan(make_sweep):
    return make_plan(make_sweep())


class Counting(Executor):
    """Serial, and remembers what it ran."""

    name = "counting"

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__()
        self.ran: list[str] = []
        self._inner = Serial()
        self._pause = pause

    def submit(self, job):
        self.ran.append(job.cell.key)
        self._inner.submit(job)

    def wait(self, seconds):
        time.sleep(self._pause)
        return self._inner.wait(seconds)

    def close(self):
        self._inner.close()


def broken(plan, position=0):
    """The plan with a checkpoint missing for one of its cells."""
    jobs = list(plan.jobs)
    jobs[position] = dataclasses.replace(jobs[position], model=ModelSource("nowhere.safetensors"))
    return dataclasses.replace(plan, jobs=tuple(jobs))


def test_a_second_run_has_nothing_to_do(plan, tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        first, second = Counting(), Counting()
        assert run_plan(plan, store, first).ran == len(plan.jobs)
        summary = run_plan(plan, store, second)
    assert first.ran == list(plan.keys)
    assert second.ran == []
    assert (summary.planned, summary.done, summary.failed, summary.ran) == (6, 6, 0, 0)


def test_a_failing_cell_becomes_a_record_and_the_sweep_goes_on(plan, tmp_path, capsys):
    with Store(tmp_path / "s.sqlite") as store:
        summary = run_plan(broken(plan), store, Serial(), PlainWatcher())
        assert (summary.done, summary.failed) == (5, 1)
        failed = [record for record in store.records() if record.status == "failed"]
    assert "nowhere.safetensors" in failed[0].error
    told = capsys.readouterr().err
    assert "failed: sklearn-digits, fog 5, source, seed 0: FileNotFoundError" in told
    assert "6/6 done, 1 failed" in told


def test_failed_cells_run_again_on_request_only(plan, tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run_plan(broken(plan), store, Serial())
        again, retry = Counting(), Counting()
        assert run_plan(plan, store, again).failed == 1
        assert run_plan(plan, store, retry, retry_failed=True).failed == 0
    assert again.ran == []
    assert retry.ran == [plan.keys[0]]


class Pretending(Counting):
    """Runs nothing, so that threads may be drivers."""

    def wait(self, seconds):
        time.sleep(0.02)
        return [Record(cell=job.cell, status="done", samples=1) for job in self._inner._jobs[:1]]

    def submit(self, job):
        self._inner.close()
        super().submit(job)


def test_two_drivers_on_one_store_share_the_work(plan, tmp_path):
    path = tmp_path / "s.sqlite"
    executors = [Pretending(), Pretending()]
    summaries = []

    def drive(executor):
        with Store(path) as store:
            summaries.append(run_plan(plan, store, executor))

    threads = [threading.Thread(target=drive, args=(executor,)) for executor in executors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ran = executors[0].ran + executors[1].ran
    assert sorted(ran) == sorted(plan.keys)
    assert all(executor.ran for executor in executors)
    assert sum(summary.ran for summary in summaries) == len(plan.jobs)
    assert [(summary.done, summary.failed) for summary in summaries] == [(6, 0), (6, 0)]


def test_the_cells_of_a_driver_that_vanished_elsewhere_are_taken_over(plan, tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        store.add_plan(plan)
        store.claim(plan.keys, "another machine|1|1|x", 1.0, count=2)
        started = time.monotonic()
        assert run_plan(plan, store, Serial()).done == 6
        assert time.monotonic() - started >= 0.5


def test_claims_are_renewed_while_a_cell_takes_longer_than_the_lease(plan, tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        slow = Counting(pause=0.5)
        one = dataclasses.replace(plan, jobs=plan.jobs[:1], requests=())
        thread_store = Store(store.path)
        thread = threading.Thread(
            target=run_plan, args=(one, thread_store, slow), kwargs={"lease_seconds": 0.15}
        )
        thread.start()
        time.sleep(0.35)
        assert store.claim([plan.keys[0]], "thief", 60) == []
        thread.join()
        thread_store.close()
    assert slow.ran == [plan.keys[0]]


def test_an_interrupted_driver_gives_its_claims_back(plan, tmp_path):
    class Interrupted(Counting):
        def wait(self, seconds):
            raise KeyboardInterrupt

    with Store(tmp_path / "s.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run_plan(plan, store, Interrupted())
        assert store.owners() == []


def test_the_estimate_uses_records_and_tries_what_has_none(plan, tmp_path):
    records = [run_job(job) for job in plan.jobs[:2]]  # source, and conjugate at one rate
    found = estimate(plan, records)
    assert (found.cells, found.done, found.failed, found.to_run) == (6, 2, 0, 4)
    assert (found.measured_kinds, found.calibrated_kinds) == (2, 0)
    by_kind = {record.cell.method: record.seconds / 60 for record in records}
    expected = 60 * (by_kind["source"] + 3 * by_kind["conjugate"])
    assert found.seconds == pytest.approx(expected)
    assert estimate(plan, records, workers=2).seconds == pytest.approx(expected / 2)
    blind = estimate(plan, [])
    assert (blind.measured_kinds, blind.calibrated_kinds) == (0, 2)
    assert blind.seconds > 0


def test_a_live_table_shows_methods_failures_and_the_time_left(plan):
    from rich.console import Console

    console = Console(width=100, record=True, force_terminal=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file, LiveWatcher(console) as watcher:
        watcher.begin(plan.jobs, {plan.keys[0]})
        watcher.finished(run_job(plan.jobs[1]))
        watcher.finished(run_job(broken(plan, 2).jobs[2]))
        console.print(watcher._table())
        shown = console.export_text()
        watcher.others(3)
        console.print(watcher._table())
        waiting = console.export_text()
    assert "conjugate" in shown
    assert "2/4" in shown
    assert "failed: sklearn-digits, fog 5, conjugate" in shown
    assert "3/6 done, 1 failed" in shown
    assert "left" in shown
    assert "waiting for 3 cells that another driver runs" in waiting


def test_executors_are_chosen_by_name_and_number():
    assert make_executor().name == "serial"
    assert make_executor(None, 2).name == "processes"
    with pytest.raises(ValueError, match="Did you mean 'processes'"):
        make_executor("process")
    with pytest.raises(ValueError, match="one worker"):
        make_executor("serial", 2)
    with pytest.raises(ValueError, match="at least one worker"):
        make_executor("processes", 0)
    with pytest.raises(ValueError, match="--executor ray"):
        make_executor("processes", 1, "auto")
