"""Calibrating a small network on shifted digits of its own, and using what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters.monitor import THRESHOLDS, Compared, Predicted
from fenchel.calibration import streams
from fenchel.calibration.streams import ShiftedStreams, widened
from fenchel.data.corruptions import TEST_CORRUPTIONS

CLASSES = 4


def blobs(count: int = 96) -> tuple[Tensor, Tensor]:
    """Bright squares in one of four corners: classes that a linear layer tells apart."""
    labels = torch.arange(count) % CLASSES
    x = 0.2 * torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for row, label in enumerate(labels.tolist()):
        y0, x0 = 4 * (label // 2), 4 * (label % 2)
        x[row, :, y0 : y0 + 4, x0 : x0 + 4] += 0.6
    return x, labels


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(),
        nn.Linear(32, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x, labels = blobs()
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    return model.eval()


def calibrated(network: nn.Module, **given: Any) -> fenchel.Calibration:
    x, labels = blobs()
    arguments = {"labels": labels, "batch_size": 32, "trials": 3, "length": 96, **given}
    return fenchel.calibrate(network, "cross-entropy", x, **arguments)


def test_the_best_trial_is_kept_with_everything_that_was_tried(network: nn.Module) -> None:
    found = calibrated(network)
    trials = found.protocol["trials"]
    assert found.level == "labels"
    assert len(trials) == 3
    assert set(found.settings) == {"longest", "temperature"}
    mine = next(t for t in trials if all(t[name] == v for name, v in found.settings.items()))
    assert mine["error_percent"] <= min(t["error_percent"] for t in trials) + 0.1


def test_without_labels_the_models_own_predictions_are_the_labels(network: nn.Module) -> None:
    x, _ = blobs()
    with torch.no_grad():
        own = network(x).argmax(-1)
    alone, told = calibrated(network, labels=None), calibrated(network, labels=own)
    assert (alone.level, told.level) == ("images", "labels")
    assert alone.protocol["trials"] == told.protocol["trials"]


def test_other_methods_get_a_learning_rate(network: nn.Module) -> None:
    found = calibrated(network, method="eta", trials=1)
    assert found.settings == {"learning_rate": 1e-3, "temperature": 1.0}


def test_adapt_takes_what_was_found_and_what_is_said_wins(network: nn.Module) -> None:
    found = fenchel.Calibration(
        method="protected", settings={"longest": 0.01, "temperature": 2.0}, level="labels"
    )
    used = fenchel.adapt(network, trained_with="cross-entropy", settings=found).settings.method
    assert (used.longest, used.term.temperature) == (0.01, 2.0)
    said = fenchel.adapt(
        network, trained_with="cross-entropy", settings=found, temperature=3.0, longest=0.02
    )
    assert (said.settings.method.longest, said.settings.method.term.temperature) == (0.02, 3.0)


def test_settings_for_another_method_are_refused(network: nn.Module) -> None:
    found = fenchel.Calibration(method="protected", settings={"longest": 0.01}, level="labels")
    with pytest.raises(ValueError, match="chosen for method 'protected'"):
        fenchel.adapt(network, trained_with="cross-entropy", method="eta", settings=found)


def test_a_file_gives_everything_back_and_has_the_same_bytes(
    network: nn.Module, tmp_path: Path
) -> None:
    found = calibrated(network, method="eata", trials=1)
    found.save(tmp_path / "one.safetensors")
    again = fenchel.Calibration.load(tmp_path / "one.safetensors")
    again.save(tmp_path / "two.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (
        tmp_path / "two.safetensors"
    ).read_bytes()
    assert again.described() == found.described()
    assert found.fisher is not None
    assert again.fisher is not None
    assert again.fisher.digest == found.fisher.digest
    assert torch.equal(again.feature_mean, found.feature_mean)
    adapted = fenchel.adapt(
        network, trained_with="cross-entropy", method="eata", settings=tmp_path / "one.safetensors"
    )
    adapted(blobs()[0])  # no source images are needed


def test_features_are_those_of_the_source(network: nn.Module) -> None:
    x, _ = blobs()
    found = calibrated(network, trials=1)
    with torch.no_grad():
        features = network[:-1](x).double()
    assert torch.allclose(found.feature_mean, features.mean(0), atol=1e-6)
    assert torch.allclose(found.feature_variance, features.var(0, correction=0), atol=1e-6)


def test_a_damaged_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not whole"):
        fenchel.Calibration.load(tmp_path / "bad.safetensors")
    with pytest.raises(FileNotFoundError, match="fenchel calibrate"):
        fenchel.Calibration.load(tmp_path / "none.safetensors")


def test_the_model_is_not_modified_and_the_same_call_finds_the_same(network: nn.Module) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    one, two = calibrated(network, trials=2), calibrated(network, trials=2)
    assert one.described() == two.described()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_no_label_and_no_corruption_of_a_test_can_reach_the_choice(
    network: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every corruption that is made while calibrating, by its name."""
    from fenchel.calibration import shifting

    made = set()
    real = shifting.corrupt

    def spy(images: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        made.add(name)
        return real(images, name, *args, **kwargs)

    monkeypatch.setattr(shifting, "corrupt", spy)
    monkeypatch.setattr(
        "fenchel.data.open_dataset", lambda *a, **k: pytest.fail("opened data"), raising=False
    )
    calibrated(network, trials=1)
    assert made
    assert not made & set(TEST_CORRUPTIONS)


def test_thresholds_make_room_for_what_healthy_runs_show() -> None:
    even = torch.eye(4, dtype=torch.float64).repeat(25, 1)
    few = torch.eye(4, dtype=torch.float64)[torch.arange(100) % 2]
    found = widened(THRESHOLDS, Compared(Predicted.of(few), Predicted.of(even), Predicted.of(even)))
    assert found.suspect == pytest.approx(0.9 * 2 / 4)
    assert found.collapsed < found.suspect
    assert found.suspect_unmoved == pytest.approx(0.9 * 2 / 4)
    alike = widened(
        THRESHOLDS, Compared(Predicted.of(even), Predicted.of(even), Predicted.of(even))
    )
    assert alike == THRESHOLDS


def test_thresholds_reach_the_monitor_and_survive_saving(network: nn.Module) -> None:
    from dataclasses import replace

    limits = replace(THRESHOLDS, suspect=0.1)
    found = fenchel.Calibration(
        method="protected", settings={"longest": 0.003}, level="images", thresholds=limits
    )
    adapted = fenchel.adapt(network, trained_with="cross-entropy", settings=found)
    adapted(blobs()[0])
    saved = adapted.state_dict()
    adapted.load_state_dict(saved)
    assert adapted.watch is not None
    assert adapted.watch.monitor.thresholds == limits


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"labels": torch.zeros(3)}, "one class per sample"),
        ({"trials": 0}, "trials"),
        ({"method": "bn"}, "nothing to calibrate"),
        ({"longest": 0.1, "temperature": 1.0}, "nothing is left"),
    ],
)
def test_mistakes_are_told(network: nn.Module, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        calibrated(network, **given)


def test_too_few_samples_are_refused(network: nn.Module) -> None:
    with pytest.raises(ValueError, match="a few hundred"):
        fenchel.calibrate(network, "cross-entropy", blobs(8)[0])


def test_one_stream_passes_over_few_samples_several_times(network: nn.Module) -> None:
    x, labels = blobs(32)
    some = ShiftedStreams(
        model=network,
        arguments={"trained_with": "cross-entropy", "method": "protected"},
        shifting=streams.Shifting.of(x),
        samples=x,
        labels=labels,
        batch_size=16,
        length=96,
        seed=0,
    )
    batches = list(some._stream("speckle_noise"))
    assert len(batches) == 6
    assert not torch.equal(batches[0][0], batches[2][0])
    counted = np.bincount(torch.cat([y for _, y in batches]).numpy())
    assert counted.tolist() == [24] * 4
