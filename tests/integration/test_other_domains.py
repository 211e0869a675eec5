"""ImageNet-R and VisDA-C as they are downloaded, through one command: `fenchel reproduce table-domain`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from fenchel.bench.record import Record
from fenchel.bench.running import run_job
from fenchel.bench.sources import opened_file, opened_model, opened_shift
from fenchel.cli import app
from fenchel.data import load
from fenchel.data.sets.visda import CLASSES as VISDA_CLASSES
from fenchel.data.stream import Stream, shift_to
from fenchel.models import Checkpoint, Metadata, build
from fenchel.paper import PRESETS
from fenchel.paper.planning import find_checkpoints, plan_preset
from fenchel.wnids import wnids

RENDERED = tuple(sorted(np.random.default_rng(0).permutation(1000)[:200].tolist()))
"""The classes of which there are renditions: 200, as in the public data set."""
FREQUENT = RENDERED[17]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    for kept in (opened_model, opened_file, opened_shift):
        kept.cache_clear()  # by name, and here the same names mean other files in every test
    return tmp_path / "home" / "data"


def write(path: Path, random: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = random.integers(0, 256, (12, 14, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_imagenet_r(folder: Path) -> None:
    random = np.random.default_rng(1)
    for label in RENDERED:
        for number in range(61 if label == FREQUENT else 1):
            write(folder / "imagenet-r" / wnids()[label] / f"sketch_{number}.jpg", random)
    (folder / "imagenet-r" / "README.txt").write_text("ImageNet-R")


def write_visda(folder: Path) -> None:
    random = np.random.default_rng(2)
    lines = []
    for label, name in enumerate(VISDA_CLASSES):
        for number in range(1 + 3 * (label == 3)):  # cars are the most frequent, as in the real one
            file = f"{name}/{name}_{number}.jpg"
            write(folder / "validation" / file, random)
            lines.append(f"{file} {label}\n")
    (folder / "validation" / "image_list.txt").write_text("".join(lines))


def save_source(
    data: str, classes: tuple[str, ...], loss: str, biases: Tensor | None = None
) -> nn.Module:
    """A network that was never trained, in the folder where `reproduce` looks."""
    arguments = {"channels": 3, "width": 1, "classes": len(classes)}
    torch.manual_seed(0)
    model = build("digit_network", **arguments).eval()
    if biases is not None:
        model.fc.bias.data = biases  # type: ignore[union-attr]
    metadata = Metadata(
        architecture="digit_network", arguments=arguments, loss=loss, classes=classes, data=data
    )
    Checkpoint(model, metadata).save(Path("runs") / data / "checkpoint.safetensors")
    return model


def source_record(title: str) -> Record:
    """What the command would run for a line, of which the source and the conjugate are run."""
    planned = plan_preset(PRESETS["table-domain"], "smoke", find_checkpoints(["runs"]))
    (line,) = [line for line in planned.lines if line.line.title == title]
    assert line.missing == ()
    assert {request.method for request in line.plan.requests} == set(line.line.runs)
    records = {
        job.cell.method: run_job(job)
        for job in line.plan.jobs
        if job.cell.method in ("source", "conjugate")
    }
    assert {record.error for record in records.values()} == {""}
    return records["source"]


def test_imagenet_r_is_scored_among_its_200_classes(cache: Path) -> None:
    write_imagenet_r(cache / "imagenet-r")
    biases = torch.full((1000,), 100.0)  # the network prefers classes that cannot occur
    biases[list(RENDERED)] = 0.0
    biases[FREQUENT] = 50.0
    save_source("imagenet", wnids(), "poly:epsilon=8", biases)
    dataset = load("imagenet-r")
    assert np.unique(dataset.labels).tolist() == list(RENDERED)
    assert np.flatnonzero(dataset.class_mask).tolist() == list(RENDERED)
    record = source_record("ImageNet-R")
    stream = Stream(shifts=[shift_to(dataset)], batch_size=16, limit=32)
    labels = np.concatenate([batch.reveal_labels().numpy() for batch in stream])
    assert record.wrong == (labels != FREQUENT).sum() < 32
    assert record.error_percent == pytest.approx(100 * record.wrong / 32)


def test_visda_is_scored_by_its_mean_class_accuracy(cache: Path) -> None:
    write_visda(cache / "visda-c")
    model = save_source("visda-c", VISDA_CLASSES, "poly:epsilon=6")
    dataset = load("visda-c")
    record = source_record("VisDA-C")
    pixels = torch.from_numpy(dataset.images(np.arange(len(dataset)))).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        wrong = model(pixels).argmax(-1).numpy() != dataset.labels
    by_class = [wrong[dataset.labels == label].mean() for label in range(12)]
    assert record.cell.metric == "mean-class-accuracy"
    assert record.error_percent == pytest.approx(100 * np.mean(by_class))
    assert np.mean(by_class) != wrong.mean()


def test_without_the_files_the_command_that_gets_them_is_told(cache: Path) -> None:
    Path("runs").mkdir()
    command = ["reproduce", "table-domain", "--checkpoints", "runs", "--dry-run", "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    told = {item["what"]: item["how"] for item in json.loads(result.stdout)["missing"]}
    assert told["the data set imagenet-r"] == "fenchel data fetch imagenet-r"
    assert "csr.bu.edu" in told["the data set visda-c"]
    assert "fenchel train --data visda-c" in told["a checkpoint trained on visda-c with poly"]
