"""A cache folder with a little of the data, and source models that were never trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fenchel.bench.sources import opened_file, opened_model, opened_shift
from fenchel.data import DATASETS
from fenchel.data.home import dataset_folder
from fenchel.models import Checkpoint, Metadata, build

CLASSES = tuple("0123456789")


@pytest.fixture(autouse=True)
def _nothing_opened_before() -> None:
    """A process keeps what it opened, by name; here the same names mean other files in every test."""
    for kept in (opened_model, opened_file, opened_shift):
        kept.cache_clear()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CIFAR-10-C with fog alone, USPS, and nothing else."""
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    for name in ("cifar10-c", "usps"):
        folder = dataset_folder(name)
        folder.mkdir(parents=True)
        DATASETS[name].write_example(folder)
    return tmp_path / "home"


@pytest.fixture
def save_checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Save a small network that says it was trained on `data` with `loss`."""

    def save(
        data: str, loss: str, folder: str = "runs/one", architecture: str = "resnet26"
    ) -> Path:
        torch.manual_seed(0)
        model = build("digit_network", channels=3, width=4)
        arguments = {"channels": 3, "width": 4}
        metadata = Metadata(
            architecture="digit_network", arguments=arguments, loss=loss, classes=CLASSES, data=data
        )
        if architecture == "resnet26":
            model = build("resnet26")
            metadata = Metadata(architecture="resnet26", loss=loss, classes=CLASSES, data=data)
        path = tmp_path / folder / "checkpoint.safetensors"
        Checkpoint(model, metadata).save(path)
        return path

    return save
