"""Files written by version 0.1 are still read: stores, exports, checkpoints, objectives, states, settings.

They were made by its own commands: a network that was never trained, twenty-two cells over scikit-learn's
digits, and an adapter after two batches.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fenchel
from fenchel.bench.exports import as_csv, as_json, import_file
from fenchel.bench.plan import make_plan
from fenchel.bench.running import run_job
from fenchel.bench.store import Store
from fenchel.bench.sweep_file import read_sweep
from fenchel.bench.tuned import read_tuned
from fenchel.models import load_checkpoint


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, in which the commands run: opening a store leaves files beside it."""
    folder = Path(shutil.copytree(Path(__file__).parent / "files", tmp_path / "files"))
    monkeypatch.chdir(folder)
    return folder


def test_a_store_is_read_and_its_cells_keep_their_keys(files: Path) -> None:
    pytest.importorskip("sklearn")
    plan = make_plan(read_sweep(files / "sweep.toml"))
    with Store.open_readonly(files / "sweep.sqlite") as store:
        records = {record.key: record for record in store.records()}
    assert len(records) == 22
    assert all(record.status == "done" for record in records.values())
    assert set(plan.keys) == set(records), "a key that changes makes old results strangers"


def test_a_cell_of_an_old_store_gives_the_same_result_today(files: Path) -> None:
    pytest.importorskip("sklearn")
    plan = make_plan(read_sweep(files / "sweep.toml"))
    with Store.open_readonly(files / "sweep.sqlite") as store:
        records = {record.key: record for record in store.records()}
    for job in plan.jobs:
        again, before = run_job(job), records[job.cell.key]
        assert again.status == "done", again.error
        assert again.order_digest == before.order_digest
        assert again.health == before.health
        # Other processors round differently: a prediction on the edge may tip over.
        assert abs(again.wrong - before.wrong) <= 1


@pytest.mark.parametrize("name", ["export.csv", "export.json"])
def test_an_export_is_imported_and_exported_again_byte_for_byte(files: Path, name: str) -> None:
    with Store(files / "new.sqlite") as store:
        assert import_file(store, files / name) == (22, 0)
        text = as_csv(store) if name.endswith("csv") else as_json(store)
    assert text == (files / name).read_text()


def test_a_checkpoint_is_read_with_its_loss(files: Path) -> None:
    checkpoint = load_checkpoint(files / "network.safetensors")
    assert checkpoint.loss_spec == "poly:epsilon=6.0"
    assert fenchel.adapt(checkpoint).settings.objective == fenchel.Conjugate(
        fenchel.PolyLoss(epsilon=6.0)
    )


def test_a_learned_objective_keeps_its_temperature(files: Path) -> None:
    checkpoint = load_checkpoint(files / "network.safetensors")
    path = files / "learned.safetensors"
    adapted = fenchel.adapt(checkpoint, method="learned", path=path)
    assert adapted.settings.objective.temperature == 1.5
    assert adapted(torch.rand(20, 1, 8, 8)).isfinite().all()


def test_the_state_of_an_adapter_goes_on(files: Path) -> None:
    checkpoint = load_checkpoint(files / "network.safetensors")
    settings = {"optimizer": "adam", "learning_rate": 0.01, "statistics": 0.3}
    adapted = fenchel.adapt(checkpoint, protect=False, **settings)
    adapted.load_state_dict(load_file(files / "adapter-state.safetensors"))
    assert adapted.health().updates == 2
    images = torch.rand(3, 20, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    expected = load_file(files / "adapter-output.safetensors")["output"]
    torch.testing.assert_close(adapted(images[2]), expected, rtol=1e-4, atol=1e-5)


def test_a_protected_adapter_goes_on_from_it_too(files: Path) -> None:
    """It was saved by an adapter without a memory or a monitor."""
    checkpoint = load_checkpoint(files / "network.safetensors")
    adapted = fenchel.adapt(checkpoint, learning_rate=0.01, statistics=0.3)
    adapted.load_state_dict(load_file(files / "adapter-state.safetensors"))
    assert adapted(torch.rand(20, 1, 8, 8)).isfinite().all()
    assert adapted.health().updates == 3
    later = fenchel.adapt(checkpoint, learning_rate=0.01, statistics=0.3)
    later.load_state_dict(adapted.state_dict())
    images = torch.rand(20, 1, 8, 8)
    assert torch.equal(adapted(images), later(images))


def test_tuned_settings_are_read(files: Path) -> None:
    tuned = read_tuned(files / "tuned.json")
    settings = tuned.settings_for("resnet26", "poly:epsilon=6", "conjugate")
    assert settings["learning_rate"] > 0
