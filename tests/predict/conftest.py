"""A network that a user trained on digits, and shifted digits of theirs in class folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

from fenchel.cli import main

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NETWORK = """
import time
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
        nn.Linear(512, 10),
    )

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = build()

    def forward(self, x):
        time.sleep(0.02)
        return self.network(x)
"""


@dataclass(frozen=True)
class Digits:
    """The files of a user: `network.py`, `net.pt`, and images in `digits/<word>/` and `flat/`."""

    folder: Path
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def call(self, images: str | Path, *further: str) -> list[str]:
        """`fenchel adapt` on the network; `images` is relative to the folder."""
        return [
            "adapt",
            *("--model", f"{self.folder / 'network.py'}:build"),
            *("--weights", str(self.folder / "net.pt"), "--trained-with", "cross-entropy"),
            *("--images", str(self.folder / images), "--gray", "--batch-size", "64"),
            *further,
        ]

    def slow_call(self, *further: str) -> list[str]:
        """The same with a network that takes its time, on small batches."""
        call = self.call("flat", "--batch-size", "16", "--save-every", "2", *further)
        call[call.index("--model") + 1] = f"{self.folder / 'network.py'}:Slow"
        call[call.index("--weights") + 1] = str(self.folder / "slow.pt")
        return call

    def network(self) -> nn.Module:
        scope: dict[str, object] = {}
        exec(NETWORK, scope)
        network: nn.Module = scope["build"]()  # type: ignore[operator]
        network.load_state_dict(torch.load(self.folder / "net.pt", weights_only=True))
        return network.eval()


class Command:
    """Runs a call in this process; `code`, `out` and `err` are of the last one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *call: str) -> Command:
        self._monkeypatch.setattr(sys, "argv", ["fenchel", *call])
        with pytest.raises(SystemExit) as stop:
            main()
        self.code = stop.value.code or 0
        self.out, self.err = self._capsys.readouterr()
        return self

    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.out))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture(scope="session")
def made_digits(tmp_path_factory: pytest.TempPathFactory) -> Digits:
    folder = tmp_path_factory.mktemp("digits")
    (folder / "network.py").write_text(NETWORK)
    scope: dict[str, object] = {}
    exec(NETWORK, scope)
    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: nn.Module = scope["build"]()  # type: ignore[operator]
        optimizer = torch.optim.Adam(network.parameters(), 1e-2)
        for _ in range(6):
            for rows in torch.randperm(1100).split(100):
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
                optimizer.step()
    torch.save(network.state_dict(), folder / "net.pt")
    slow = {f"network.{name}": value for name, value in network.state_dict().items()}
    torch.save(slow, folder / "slow.pt")
    noise = np.random.default_rng(0).normal(0, 12, (598, 8, 8))
    images = np.clip(x[1100:1698, 0].numpy() * 102 + 90 + noise, 0, 255).astype(np.uint8)
    for index, (image, label) in enumerate(zip(images, labels[1100:1698], strict=True)):
        for place in (folder / "digits" / WORDS[label], folder / "flat"):
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{index:04d}.png")
    return Digits(folder, images, labels[1100:1698].astype(np.int64))


@pytest.fixture
def digits(
    made_digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Digits]:
    """The same, from a fresh working folder."""
    monkeypatch.chdir(tmp_path)
    yield made_digits
