"""What the tests of the documentation share: the modules beside them, and a place to work in."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import documented_workplace

from fenchel.bench import executors
from fenchel.bench.executors import base


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny one of everything that the documentation takes for granted."""
    folder = tmp_path_factory.mktemp("workplace")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FENCHEL_HOME", str(folder / "home"))
        documented_workplace.furnish(folder)
    return folder


@pytest.fixture
def workplace(
    furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_names: None
) -> Path:
    """A copy of it, in which the test stands; cells run in this process, pictures on one core."""
    folder = tmp_path / "workplace"
    shutil.copytree(furnished, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FENCHEL_HOME", str(folder / "home"))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(executors, "make_executor", _in_this_process)
    return folder


def _in_this_process(
    name: str | None = None, workers: int | None = None, address: str | None = None
) -> base.Executor:
    """What `make_executor` gives for one worker; to start others is tested in tests/bench."""
    assert name in (None, *base.EXECUTORS)
    return base.make_executor("serial", 1)
