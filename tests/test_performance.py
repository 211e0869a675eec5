"""Advice about the machine, and freed memory that stays in the process when asked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from fenchel.cli import app, main
from fenchel.performance import examine, is_glibc

FAULTS = """
import resource, sys, torch
from fenchel.performance import retain_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "retain":
    assert retain_freed_memory()
def use():
    torch.ones(64 * 2**20 // 4)  # 64 MiB
for _ in range(10):  # until the heap is as large as it gets
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not is_glibc(), reason="only glibc returns memory this way")
def test_retained_memory_is_not_faulted_in_again() -> None:
    faults = {}
    for mode in ("retain", "default"):
        command = [sys.executable, "-c", FAULTS, mode]
        faults[mode] = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert faults["default"] > 1000
    assert faults["retain"] < faults["default"] / 20


PEAKS = """
import torch
from fenchel.bench.memory import PeakMemory
from fenchel.performance import retain_freed_memory
torch.set_num_threads(1)
assert retain_freed_memory()
for mebibytes in (256, 1):
    with PeakMemory("cpu") as memory:
        torch.ones(mebibytes * 2**20 // 4)
    print(memory.peak)
"""


@pytest.mark.skipif(not is_glibc(), reason="only glibc returns memory this way")
def test_memory_kept_by_earlier_work_does_not_count_as_a_peak() -> None:
    command = [sys.executable, "-c", PEAKS]
    heavy, light = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    assert heavy - light > 200 * 2**20


@pytest.mark.skipif(not is_glibc(), reason="only glibc returns memory this way")
def test_the_command_line_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("fenchel.cli.retain_freed_memory", lambda: asked.append(True))
    monkeypatch.setattr("sys.argv", ["fenchel", "list", "losses"])
    with pytest.raises(SystemExit):
        main()
    assert asked == [True]


def test_importing_fenchel_leaves_the_allocator_alone() -> None:
    code = "import fenchel, sys; sys.exit('fenchel.performance' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_more_threads_than_cores_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10_000)
    threads = next(finding for finding in examine() if finding.topic == "threads")
    assert "OMP_NUM_THREADS" in threads.advice


def test_doctor_recommends_retaining_memory_and_channels_last() -> None:
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert "channels-last" in text
    assert not is_glibc() or "retain_freed_memory" in text
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert {"devices", "threads", "allocator"} <= {row["topic"] for row in found["findings"]}
