"""Real drivers and workers, killed with SIGKILL at random moments, end in the same bytes.

FENCHEL_KILLS=50 FENCHEL_CELLS=300 pytest tests/bench/test_kill.py is the whole promise.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_sweep.py")
KILLS = int(os.environ.get("FENCHEL_KILLS", "6"))
CELLS = int(os.environ.get("FENCHEL_CELLS", "40"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


def run_script(network: Path, folder: Path, kills: int, longest: float, executor: str) -> bytes:
    folder.mkdir()
    shutil.copy(network, folder / "network.safetensors")
    arguments = [str(folder), str(kills), str(longest), str(CELLS), executor]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=1800,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    told = f"killed {kills} times, ended with 0, {CELLS} of {CELLS} done"
    assert done.stdout.strip() == told, done.stdout + done.stderr
    return (folder / "results.csv").read_bytes()


@pytest.fixture(scope="module")
def whole(network, tmp_path_factory) -> bytes:
    """The results of a sweep that nobody interrupted."""
    return run_script(network, tmp_path_factory.mktemp("whole") / "run", 0, 0, "serial")


def test_drivers_killed_at_random_moments_lose_nothing_and_repeat_nothing(network, tmp_path, whole):
    killed = run_script(network, tmp_path / "killed", KILLS, 0.5, "serial")
    assert killed == whole
    assert len(whole.splitlines()) == CELLS + 1


def test_killed_drivers_and_workers_of_processes_end_in_the_same_bytes(network, tmp_path, whole):
    kills, longest = (KILLS, 8) if KILLS >= 50 else (1, 6)
    assert run_script(network, tmp_path / "killed", kills, longest, "processes") == whole
