"""Real drivers and workers, killed with SIGKILL at random moments, end in the same bytes.

FENCHEL_KILLS=50 FENCHEL_CELLS=300 pytest tests/bench/test_kill.py is the whole promise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import killed_sweep

KILLS = int(os.environ.get("FENCHEL_KILLS", "6"))
CELLS = int(os.environ.get("FENCHEL_CELLS", "40"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


@pytest.fixture(scope="module")
def whole(network: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The results of a sweep that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copy(network, folder / "network.safetensors")
    assert killed_sweep.drive(folder, CELLS, "serial") == 0
    return killed_sweep.results_in(folder)


@pytest.fixture
def folder(network: Path, tmp_path: Path) -> Path:
    """The place of a sweep that is to be killed."""
    shutil.copy(network, tmp_path / "network.safetensors")
    return tmp_path


def told(kills: int) -> str:
    return f"killed {kills} times, ended with 0, {CELLS} of {CELLS} done"


def test_drivers_killed_at_random_moments_lose_nothing_and_repeat_nothing(
    folder: Path, whole: str
) -> None:
    """In a process that runs no tensor operation, as it forks the drivers."""
    done = subprocess.run(
        [sys.executable, killed_sweep.__file__, str(folder), str(KILLS), "0.5", str(CELLS)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.strip() == told(KILLS), done.stderr
    assert killed_sweep.results_in(folder) == whole
    assert len(whole.splitlines()) == CELLS + 1


def test_killed_drivers_and_workers_of_processes_end_in_the_same_bytes(
    folder: Path, whole: str
) -> None:
    kills, longest = (KILLS, 8) if KILLS >= 50 else (1, 6)
    assert killed_sweep.survived(folder, kills, longest, CELLS, "processes") == told(kills)
    assert killed_sweep.results_in(folder) == whole
