"""`fenchel serve`: what its options come to, and what it says. Real services run in tests/serve."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fenchel.cli import main
from fenchel.serve import deployment
from fenchel.serve.service import Service

NETWORK = """
from torch import nn

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
"""
CALL = ["serve", "--model", "network.py:build", "--trained-with", "cross-entropy", "--json"]


@dataclass
class Standing:
    """In the place of a service that runs: somebody presses Ctrl-C at once."""

    service: Service
    stopped: bool = False

    @property
    def url(self) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "http://here"

    def stop(self) -> None:
        print("(raylet) a message of Ray")
        self.stopped = True


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Standing]:
    monkeypatch.chdir(tmp_path)
    Path("network.py").write_text(NETWORK)
    made: list[Standing] = []

    def start(service: Service, *, address: str | None = None) -> Standing:
        made.append(Standing(service))
        return made[-1]

    monkeypatch.setattr(deployment, "start", start)
    monkeypatch.setattr(deployment, "require_serve", lambda: None)
    return made


def call(monkeypatch: pytest.MonkeyPatch, *further: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["fenchel", *CALL, *further])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def test_options_become_a_service_that_ends_with_ctrl_c(
    served: list[Standing], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("classes.txt").write_text("cat\ndog\nowl\n")
    Path("token").write_text("a-token-of-some-length")
    options = (
        "--replicas",
        "2",
        "--store",
        "kept",
        "--classes",
        "classes.txt",
        "--most-images",
        "9",
        "--most-pixels",
        "999",
    )
    code = call(monkeypatch, *options, "--token-file", "token", "--statistics", "0.1")
    assert code == 0
    (standing,) = served
    service = standing.service
    assert standing.stopped
    assert (service.replicas, service.host, service.limits.images) == (2, "127.0.0.1", 9)
    assert service.limits.pixels == 999
    assert service.store == Path("kept").resolve()
    assert service.classes == ("cat", "dog", "owl")
    assert service.adaptation.statistics == 0.1
    assert Path(service.adaptation.model.rpartition(":")[0]).is_absolute()
    out, err = capsys.readouterr()
    assert json.loads(out)["url"] == "http://here"
    assert "(raylet) a message of Ray" in err
    assert "warning" not in err
    assert "a-token" not in out + err


def test_a_service_for_everybody_warns(
    served: list[Standing], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--host", "0.0.0.0") == 0
    assert "whoever reaches 0.0.0.0 may use this service" in capsys.readouterr().err


def test_mistakes_are_told_before_ray_starts(
    served: list[Standing], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--statistics", "bach") == 2
    assert "--statistics must be" in capsys.readouterr().err
    monkeypatch.setenv("FENCHEL_TOKEN", "short")
    assert call(monkeypatch) == 2
    assert "at least 16" in capsys.readouterr().err
    assert served == []
