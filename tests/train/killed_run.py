"""Train in child processes, undisturbed and killed at random moments; run as a script by test_kill.py.

    python killed_run.py FOLDER KILLS LONGEST

The parent imports everything once and runs no tensor operation, so that forking it is safe and a
kill costs milliseconds instead of the time of an import.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from fenchel.data import from_arrays
from fenchel.losses import PolyLoss
from fenchel.train import Recipe, TrainingRun, source, train


def run_in(folder: Path) -> TrainingRun:
    """The run: 4 epochs of 20 steps, the best of them kept, saved after every step."""
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (600, 8, 8, 1)).astype(np.uint8)
    labels = pixels[:, :4].mean((1, 2, 3)) > pixels[:, 4:].mean((1, 2, 3))
    recipe = Recipe(
        epochs=4,
        batch_size=27,
        held_out=0.1,
        keep="best",
        schedule="one-cycle",
        augmentation="pad-crop:padding=1",
    )
    return TrainingRun(
        data=from_arrays("halves", pixels, labels.astype(int), split="train"),
        test=from_arrays("halves", pixels[:50], labels[:50].astype(int)),
        model="resnet26",
        loss=PolyLoss(epsilon=6.0),
        recipe=recipe,
        out=folder,
        threads=1,
        save_seconds=0,
    )


def child(folder: Path) -> int:
    """Start the training in a new process and return its id."""
    process = os.fork()
    if process:
        return process
    source.SAVING_SHARE = 1e9
    try:
        train(run_in(folder))
    except BaseException:
        os._exit(1)
    os._exit(0)


def survived(folder: Path, kills: int, longest: float) -> str:
    """Kill `kills` times, after at most `longest` seconds each, then let it finish; what came out."""
    chance = random.Random(int(os.environ.get("KILL_SEED", "0")))
    killed = 0
    for _ in range(kills):
        process = child(folder)
        time.sleep(chance.uniform(0, longest))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        killed += os.WIFSIGNALED(status)
    _, status = os.waitpid(child(folder), 0)
    return f"killed {killed} times, ended with {os.waitstatus_to_exitcode(status)}"


if __name__ == "__main__":
    where, kills, longest = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    print(survived(where / "whole", 0, 0))
    print(survived(where / "killed", kills, longest))
