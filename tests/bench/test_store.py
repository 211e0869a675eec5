"""The store: exactly once, claims that expire, and damage that is told instead of hidden."""

import dataclasses
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from fenchel.bench.owners import is_dead, new_owner, release_the_dead
from fenchel.bench.plan import Plan, Request, make_plan
from fenchel.bench.record import Record
from fenchel.bench.store import Store, StoreError


@pytest.fixture
def plan(make_sweep) -> Plan:
    return make_plan(make_sweep())


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def done(cell, wrong=1) -> Record:
    return Record(
        cell=cell,
        status="done",
        samples=4,
        wrong=wrong,
        wrong_mask="8A==",
        timings={"seconds": 2.0},
    )


def test_a_store_is_in_wal_mode(store):
    with closing(sqlite3.connect(store.path)) as another:
        assert another.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


def test_a_result_lands_once(store, plan):
    cell = plan.jobs[0].cell
    assert store.add_record(done(cell, wrong=1))
    assert not store.add_record(done(cell, wrong=3))
    (record,) = store.records()
    assert record == done(cell, wrong=1)


def test_records_come_back_whole_and_sorted(store, plan):
    for job in reversed(plan.jobs):
        store.add_record(done(job.cell))
    shown = list(store.records())
    assert {record.cell for record in shown} == {job.cell for job in plan.jobs}
    titles = [record.cell.shift_title for record in shown]
    assert titles == sorted(titles)
    some = set(plan.keys[:2])
    assert {record.key for record in store.records(some)} == some


def test_the_plan_is_remembered_with_the_names_that_were_asked_for(store, plan):
    extra = Request(plan.keys[0], "another name", "tuned on spatter")
    store.add_plan(dataclasses.replace(plan, requests=(*plan.requests, extra)))
    store.add_plan(plan)
    assert {cell.key for cell in store.cells()} == set(plan.keys)
    assert set(store.requests()[plan.keys[0]]) == {plan.requests[0], extra}


def test_counts_tell_done_failed_running_and_pending(store, plan):
    store.add_plan(plan)
    first, second, third = (job.cell for job in plan.jobs[:3])
    store.add_record(done(first))
    store.add_record(Record(cell=second, status="failed", error="E"))
    store.claim([third.key], "me", 60)
    counts = store.counts()
    assert (counts.planned, counts.done, counts.failed, counts.running, counts.pending) == (
        6,
        1,
        1,
        1,
        3,
    )
    assert store.counts([first.key]).planned == 1


def test_forgetting_failures_keeps_what_is_done(store, plan):
    first, second = (job.cell for job in plan.jobs[:2])
    store.add_record(done(first))
    store.add_record(Record(cell=second, status="failed", error="E"))
    assert store.forget_failures({first.key}) == 0
    assert store.forget_failures({first.key, second.key}) == 1
    assert store.statuses() == {first.key: "done"}


def test_a_claim_keeps_others_away_until_it_expires(store, plan):
    store.add_plan(plan)
    keys = list(plan.keys)
    assert store.claim(keys, "first", 60, count=2) == keys[:2]
    assert store.claim(keys, "second", 60, count=2) == keys[2:4]
    store.renew("first", -1)
    assert store.claim(keys, "second", 60, count=2) == keys[:2]
    store.add_record(done(plan.jobs[0].cell))
    store.release("second")
    assert store.claim(keys, "third", 60, count=9) == keys[1:]


def test_claims_of_many_drivers_never_overlap(store, plan, tmp_path):
    store.add_plan(plan)
    taken: list[str] = []

    def drive(number: int) -> None:
        with Store(store.path) as mine:
            while got := mine.claim(list(plan.keys), f"driver {number}", 60):
                taken.extend(got)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(plan.keys)


def test_the_claims_of_a_dead_driver_are_free_at_once(store, plan):
    store.add_plan(plan)
    machine, _, start, unique = new_owner().split("|")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    dead = "|".join((machine, str(child), start, unique))
    recycled = "|".join((machine, str(os.getpid()), "1", unique))
    elsewhere = "|".join(("another machine", str(child), start, unique))
    alive = new_owner()
    assert [is_dead(owner) for owner in (dead, recycled, elsewhere, alive)] == [
        True,
        True,
        False,
        False,
    ]
    for owner in (dead, elsewhere, alive):
        store.claim(list(plan.keys), owner, 60)
    release_the_dead(store)
    assert set(store.owners()) == {elsewhere, alive}


def test_reading_sees_what_is_written_meanwhile(store, plan):
    with Store.open_readonly(store.path) as reader:
        assert list(reader.records()) == []
        store.add_record(done(plan.jobs[0].cell))
        assert len(list(reader.records())) == 1
        with pytest.raises(OSError, match="readonly"):
            reader.add_record(done(plan.jobs[1].cell))


LOOK = """
import sqlite3, sys
print(len(sqlite3.connect(sys.argv[1]).execute("SELECT * FROM records").fetchall()))
"""


def seen_by_another_process(path) -> int:
    command = [sys.executable, "-c", LOOK, str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_another_process_may_look_at_any_time_and_takes_nothing_away(store, plan):
    """It must see that the store is in use: the last to close it removes the log, with what is in it."""
    with Store(store.path):  # a second connection of this process
        for count, job in enumerate(plan.jobs[:3], start=1):
            store.add_record(done(job.cell))
            assert seen_by_another_process(store.path) == count
    store.add_record(done(plan.jobs[3].cell))
    assert seen_by_another_process(store.path) == 4


def test_reading_a_store_that_is_not_there_makes_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no store"):
        Store.open_readonly(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"not a database at all", b"SQLite format 3\0" + b"\0" * 2000]
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "results.sqlite"
    path.write_bytes(content)
    for readonly in (False, True):
        with pytest.raises(StoreError, match=r"damaged or something else .* left as it is"):
            Store(path, readonly=readonly)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE records (x)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        Store(path)


def test_a_store_of_another_format_is_refused(store):
    with closing(sqlite3.connect(store.path)) as another:
        another.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="has format 99"):
        Store(store.path)


@pytest.fixture
def filled(tmp_path, plan):
    """The path of a closed store with some pages of records."""
    path = tmp_path / "filled.sqlite"
    with Store(path) as store:
        for job in plan.jobs:
            mask = "A" * 8000
            store.add_record(dataclasses.replace(done(job.cell), wrong_mask=mask))
    return path


def test_a_truncated_store_is_refused_and_left_alone(filled):
    content = filled.read_bytes()[: filled.stat().st_size // 2]
    filled.write_bytes(content)
    with pytest.raises((StoreError, OSError)):
        list(Store(filled).records())
    assert filled.read_bytes() == content


def test_a_store_with_garbage_inside_is_refused(filled):
    content = bytearray(filled.read_bytes())
    content[4096:12288] = os.urandom(8192)
    filled.write_bytes(content)
    with pytest.raises((StoreError, OSError)):
        list(Store(filled).records())


def test_a_changed_letter_in_a_record_is_noticed(filled):
    content = filled.read_bytes()
    place = content.index(b"AAAAAAAA")
    filled.write_bytes(content[:place] + b"B" + content[place + 1 :])
    with Store(filled) as store, pytest.raises(StoreError, match="checksum"):
        list(store.records())


def test_a_store_that_vanished_beside_its_log_is_told(tmp_path):
    (tmp_path / "results.sqlite-wal").write_bytes(b"rest")
    with pytest.raises(StoreError, match="it is gone"):
        Store(tmp_path / "results.sqlite")


def test_a_new_store_leaves_nothing_else_behind(tmp_path):
    Store(tmp_path / "deep" / "results.sqlite").close()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["results.sqlite"]
