"""Run a sweep in drivers that are killed at random moments; run as a script by test_kill.py.

    python killed_sweep.py FOLDER KILLS LONGEST CELLS

With the serial executor the parent imports everything once and runs no tensor operation, so that
forking it is safe and a kill costs milliseconds instead of the time of an import. With processes,
every driver is a fresh interpreter, and the kill hits the driver or one of its workers.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from fenchel.bench.driver import run_plan
from fenchel.bench.executors import make_executor
from fenchel.bench.exports import as_csv
from fenchel.bench.plan import make_plan
from fenchel.bench.store import Store
from fenchel.bench.sweep import DataChoice, MethodChoice, StreamChoice, Sweep


def sweep_in(folder: Path, cells: int) -> Sweep:
    """A tenth of the cells on each of five corruptions at two severities, a rate each."""
    rates = [0.001 * (step + 1) for step in range(cells // 10)]
    return Sweep(
        data=[
            DataChoice(
                name="sklearn-digits",
                corruptions=["fog", "contrast", "brightness", "pixelate", "shot_noise"],
                severities=[3, 5],
                limit=60,
            )
        ],
        checkpoints=["network.safetensors"],
        methods=[MethodChoice(name="conjugate", grid={"learning_rate": rates})],
        stream=StreamChoice(batch_size=20),
        folder=folder,
    )


def drive(folder: Path, cells: int, executor: str) -> int:
    """A driver's whole life; its exit code."""
    torch.set_num_threads(1)
    workers = 1 if executor == "serial" else 2
    plan = make_plan(sweep_in(folder, cells))
    with Store(folder / "store.sqlite") as store, make_executor(executor, workers) as running:
        summary = run_plan(plan, store, running)
    return 0 if summary.done == summary.planned else 1


def start(folder: Path, cells: int, executor: str) -> int:
    """Start a driver and return its process id."""
    if executor != "serial":
        command = [sys.executable, __file__, "drive", str(folder), str(cells), executor]
        return os.posix_spawn(sys.executable, command, os.environ)
    process = os.fork()
    if process:
        return process
    try:
        os._exit(drive(folder, cells, executor))
    except BaseException:
        os._exit(70)


def victim(driver: int, executor: str, chance: random.Random) -> int:
    """The driver, or as often one of the processes below it."""
    children = Path(f"/proc/{driver}/task/{driver}/children")
    if executor == "serial" or not children.exists():
        return driver
    return chance.choice([driver, *map(int, children.read_text().split())])


def survived(folder: Path, kills: int, longest: float, cells: int, executor: str) -> str:
    """Kill `kills` times, after at most `longest` seconds each, then let a driver finish; what came out."""
    chance = random.Random(int(os.environ.get("KILL_SEED", "0")))
    killed = 0
    driver = start(folder, cells, executor)
    while killed < kills:
        time.sleep(chance.uniform(0, longest))
        target = victim(driver, executor, chance)
        os.kill(target, signal.SIGKILL)
        if target == driver or os.waitpid(driver, os.WNOHANG)[0]:
            if target == driver:
                _, status = os.waitpid(driver, 0)
                killed += os.WIFSIGNALED(status)
            driver = start(folder, cells, executor)
        else:
            killed += 1
    _, status = os.waitpid(driver, 0)
    with Store.open_readonly(folder / "store.sqlite") as store:
        counts = store.counts()
    ended = os.waitstatus_to_exitcode(status)
    return f"killed {killed} times, ended with {ended}, {counts.done} of {counts.planned} done"


def results_in(folder: Path) -> str:
    """What is in the store, without what differs from run to run."""
    with Store.open_readonly(folder / "store.sqlite") as store:
        return as_csv(store)


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        sys.exit(drive(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    where, kills, longest, cells = sys.argv[1:]
    print(survived(Path(where), int(kills), float(longest), int(cells), "serial"))
