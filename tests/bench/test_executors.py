"""Every executor gives the same results, and a dead worker costs nothing but time."""

import dataclasses
import multiprocessing
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fenchel.bench.driver import run_plan
from fenchel.bench.executors import EXECUTORS, make_executor, processes
from fenchel.bench.exports import as_csv
from fenchel.bench.plan import make_plan
from fenchel.bench.sources import ModelSource
from fenchel.bench.store import Store
from fenchel.bench.sweep import DataChoice, MethodChoice, ModelChoice, StreamChoice

EXPECTED = ("processes", "ray", "serial")


@pytest.fixture(scope="module")
def csv_of(tmp_path_factory):
    """Run a plan somewhere and export what came out."""

    def run(plan, name, workers):
        path = tmp_path_factory.mktemp(name) / "s.sqlite"
        with Store(path) as store, make_executor(name, workers) as executor:
            summary = run_plan(plan, store, executor)
            assert summary.ran == len(plan.jobs)
            return as_csv(store)

    return run


OWN_CODE = """
from torch import nn

def build(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(), Head(36 * width)
    )

class Head(nn.Linear):
    def __init__(self, features):
        super().__init__(features, 10)

def cross_entropy(h, y):
    return -(y * h.log_softmax(-1)).sum(-1)
"""


@pytest.fixture
def plan(make_sweep, tmp_path):
    """Cells of every kind: a moving network, views, a stream over shifts, own code; and two that fail."""
    (tmp_path / "own.py").write_text(OWN_CODE)
    code = f"{tmp_path / 'own.py'}:"
    own = ModelChoice(name=f"{code}build:width=4", trained_with=f"{code}cross_entropy")
    methods = [MethodChoice(name=name) for name in ("source", "bn", "hard", "memo", "conjugate")]
    reset = make_plan(make_sweep(methods=methods))
    continual = make_plan(
        make_sweep(methods=methods[-1:], stream=StreamChoice(batch_size=30, setting="continual"))
    )
    clean = make_plan(make_sweep(methods=methods[:2], data=[DataChoice(name="sklearn-digits")]))
    own_code = make_plan(make_sweep(methods=methods[-1:], checkpoints=[], models=[own]))
    jobs = [*reset.jobs, *continual.jobs, *clean.jobs, *own_code.jobs]
    wrong_cell = dataclasses.replace(jobs[0].cell, model_digest="0" * 64)
    jobs[0] = dataclasses.replace(jobs[0], cell=wrong_cell)
    jobs[1] = dataclasses.replace(jobs[1], model=ModelSource("gone.safetensors"))
    return dataclasses.replace(reset, jobs=tuple(jobs), requests=())


def test_the_executors_are_registered():
    assert sorted(EXECUTORS) == list(EXPECTED)


def test_processes_give_the_results_of_serial(plan, csv_of):
    serial = csv_of(plan, "serial", 1)
    assert serial.count(",failed,ValueError: the model must not change") == 1
    assert serial.count(",failed,") == 2
    assert serial.count(",done,") == len(plan.jobs) - 2
    assert csv_of(plan, "processes", 2) == serial


@pytest.mark.usefixtures("one_cluster_at_a_time")
def test_ray_gives_the_results_of_serial_and_survives_killed_workers(
    plan, csv_of, make_sweep, tmp_path
):
    pytest.importorskip("ray")
    slow = MethodChoice(name="conjugate", grid={"steps": [100]})
    slow_jobs = make_plan(make_sweep(methods=[slow])).jobs
    with make_executor("ray", 2) as executor:
        with Store(tmp_path / "s.sqlite") as store:
            run_plan(plan, store, executor)
            assert as_csv(store) == csv_of(plan, "serial", 1)
        for job in slow_jobs:
            executor.submit(job)
        killed = kill_ray_workers(1)
        records = collect(executor, len(slow_jobs))
    assert killed >= 1
    assert {record.key: record.status for record in records} == {
        job.cell.key: "done" for job in slow_jobs
    }


def test_an_address_without_a_cluster_is_told_at_once():
    pytest.importorskip("ray")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(OSError, match=f"nobody answers at '{address}'"):
            make_executor("ray", 1, address)


def kill_ray_workers(count):
    """Kill processes of ours at work on a task; Ray names them by what they do."""
    deadline, killed = time.monotonic() + 60, set()
    while len(killed) < count and time.monotonic() < deadline:
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                ours = f"/{os.getpid()}/" in f"/{ancestors(int(entry.name))}/"
                if ours and b"ray::run_shipped" in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed.add(entry.name)
    return len(killed)


def ancestors(process):
    """The ids of a process's parents, up to the first."""
    chain = []
    while process > 1:
        facts = Path(f"/proc/{process}/stat").read_text()
        process = int(facts.rpartition(")")[2].split()[1])
        chain.append(str(process))
    return "/".join(chain)


def collect(executor, count):
    records, deadline = [], time.monotonic() + 90
    while len(records) < count and time.monotonic() < deadline:
        records += executor.wait(0.5)
    return records


def test_a_killed_worker_costs_no_result(plan):
    with make_executor("processes", 1) as executor:
        executor.submit(plan.jobs[3])
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid, signal.SIGKILL)
        (record,) = collect(executor, 1)
    assert (record.status, record.key) == ("done", plan.jobs[3].cell.key)


class Deadly:
    """What ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (9,)


def test_a_cell_that_kills_every_worker_fails_and_the_others_go_on(plan, monkeypatch):
    monkeypatch.setattr(processes, "ATTEMPTS", 2)
    deadly = dataclasses.replace(plan.jobs[3], model=Deadly())
    with make_executor("processes", 2) as executor:
        executor.submit(deadly)
        executor.submit(plan.jobs[2])
        done, failed = sorted(collect(executor, 2), key=lambda record: record.status)
    assert (failed.status, failed.key) == ("failed", deadly.cell.key)
    assert failed.error == "WorkerDied: 2 workers died at this cell, the last one with exit code 9."
    assert (done.status, done.key) == ("done", plan.jobs[2].cell.key)


def test_workers_that_cannot_start_end_the_sweep_with_a_reason(plan, monkeypatch):
    monkeypatch.setattr(processes, "_work", os._exit)  # which refuses what it is given
    told = "3 in a row did not, the last one ended with exit code 1"
    with make_executor("processes", 1) as executor:
        executor.submit(plan.jobs[3])
        with pytest.raises(OSError, match=told):
            collect(executor, 1)


def test_workers_end_with_their_executor(plan):
    with make_executor("processes", 1) as executor:
        executor.submit(plan.jobs[3])
        (worker,) = multiprocessing.active_children()
    assert not worker.is_alive()
