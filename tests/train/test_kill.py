"""A real process, killed with SIGKILL at random moments, ends in the same bytes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_run.py")
KILLS = int(os.environ.get("FENCHEL_KILLS", "6"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_run_killed_at_random_moments_ends_in_the_same_bytes(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(KILLS), "0.9"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout.splitlines() == [
        "killed 0 times, ended with 0",
        f"killed {KILLS} times, ended with 0",
    ]
    for name in ("checkpoint.safetensors", "history.csv"):
        whole, killed = ((tmp_path / f / name).read_bytes() for f in ("whole", "killed"))
        assert whole == killed, name
    names = {path.name for path in (tmp_path / "killed").iterdir()}
    assert names == {".lock", "checkpoint.safetensors", "history.csv"}
