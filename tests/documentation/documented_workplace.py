"""A folder with everything that the documentation's commands refer to, as small as it can be."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import torch
from documented_text import ROOT, blocks
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from fenchel.cli import app
from fenchel.data import DATASETS
from fenchel.data.formats.cifar_binary import write_binary
from fenchel.data.sets.cifar import CIFAR10_BINARY, CIFAR10_CLASSES
from fenchel.models import Checkpoint, Metadata, build

IMAGES = 40
NET = """
from torch import nn


def build(classes=2):
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, classes))
"""
LOSSES = """
def focal(h, y):
    return -(y * (1 - h.softmax(-1)) ** 3 * h.log_softmax(-1)).sum(-1)
"""

SHORT = "--epochs 1 --batches 2 --every 2 --batch-size 20 --score-corruption fog"
PREPARED = (
    "fenchel calibrate --model runs/ce --images source.npz --out ce.calibration.safetensors --trials 1 "
    "--length 40",
    "fenchel bench sweep.toml",
    "fenchel bench export sweep.toml --out results.csv",
    "fenchel bench import results.sqlite results.csv",
    f"fenchel meta train --checkpoint runs/ce --data cifar10-c {SHORT} --out runs/meta-ce",
    "fenchel meta fit runs/meta-ce",
    "fenchel train --data cifar10 --model my_net.py:build --loss poly:epsilon=6 --out runs/own "
    "--epochs 1 --limit 20 --batch-size 20",
)
"""What earlier commands of the documentation leave behind for later ones."""


def furnish(folder: Path) -> None:
    """Write all of it into the current folder."""
    random = np.random.default_rng(0)
    _write_data(folder / "home" / "data", random)
    _write_photos(folder / "photos", random)
    _write_cameras(folder / "cameras", random)
    source = random.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "source.npz", images=source, labels=np.arange(40) % 10)
    np.save(folder / "digits.npy", random.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8))
    _write_code(folder)
    for place, loss in {"runs/poly": "poly:epsilon=6", "runs/ce": "cross-entropy"}.items():
        save_network(folder / place / "checkpoint.safetensors", loss=loss, data="cifar10")
    save_network(folder / "source.safetensors", loss="cross-entropy", data="cifar10")
    save_network(
        folder / "home" / "models" / "resnet50" / "checkpoint.safetensors",
        loss="cross-entropy",
        data="imagenet",
    )
    _write_sweep(folder / "sweep.toml")
    for command in PREPARED:
        run(command)


def save_network(path: Path, *, loss: str, data: str) -> None:
    """A network that was never trained: every command works on it just the same."""
    arguments = {"width": 4, "channels": 3}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build("digit_network", **arguments)
    metadata = Metadata(
        architecture="digit_network",
        arguments=arguments,
        classes=CIFAR10_CLASSES,
        loss=loss,
        data=data,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    Checkpoint(model.eval(), metadata).save(path)


def _write_data(folder: Path, random: np.random.Generator) -> None:
    cifar = folder / "cifar10" / CIFAR10_BINARY.folder
    cifar.mkdir(parents=True)
    for file in (*CIFAR10_BINARY.train, *CIFAR10_BINARY.test):
        images = random.integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
        write_binary(cifar / file, images, np.arange(IMAGES) % 10)
    for name in ("mnist", "imagenet"):
        write_example = DATASETS[name].write_example
        assert write_example is not None
        (folder / name).mkdir()
        write_example(folder / name)


def _write_photos(folder: Path, random: np.random.Generator) -> None:
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def _write_cameras(folder: Path, random: np.random.Generator) -> None:
    for name in ("north", "south"):
        (folder / name).mkdir(parents=True)
        for number in range(20):
            pixels = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def _write_code(folder: Path) -> None:
    (folder / "my_net.py").write_text(NET)
    (folder / "my_losses.py").write_text(LOSSES)
    shown = blocks(ROOT / "docs" / "methods.md", "python")
    registered = next(block for block in shown if "@fenchel.register" in block)
    method, use, _ = registered.partition("\n\nmodel = ")
    assert use
    (folder / "my_method.py").write_text(method + "\n")
    space: dict[str, object] = {}
    exec(NET, space)
    for name, arguments in {"net.pt": {}, "net-cifar10.pt": {"classes": 10}}.items():
        network = space["build"](**arguments)  # type: ignore[operator]
        assert isinstance(network, nn.Module)
        torch.save(network.state_dict(), folder / name)


def _write_sweep(path: Path) -> None:
    """The documented sweep, cut down to two corruptions and one seed."""
    text = blocks(ROOT / "docs" / "benchmark.md", "toml")[0]
    for key, small in {"seeds": "[0]", "corruptions": '["fog", "contrast"]'}.items():
        text, changed = re.subn(rf"^{key} = .*$", f"{key} = {small}", text, flags=re.MULTILINE)
        assert changed == 1
    path.write_text(text)


def run(command: str) -> None:
    """Run a command of `fenchel` in this process; anything but success is an error."""
    arguments = shlex.split(command)[1:]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, f"{command}\n{done.output}"
