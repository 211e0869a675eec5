"""A sweep takes a learned objective as it takes any method."""

import pytest
import torch

import fenchel
from fenchel.bench.plan import make_plan
from fenchel.bench.running import run_job
from fenchel.bench.sources import ingredients
from fenchel.bench.sweep import MethodChoice
from fenchel.bench.sweep_file import read_sweep
from fenchel.data.stream import Stream
from fenchel.objectives import LearnedObjective, LossNetwork


@pytest.fixture
def saved(tmp_path):
    """Writes an objective that depends on a seed, and returns its path."""

    def save(seed, temperature=1.0):
        torch.manual_seed(seed)
        path = tmp_path / "learned.safetensors"
        LearnedObjective(LossNetwork(classes=10), temperature=temperature).save(path)
        return path

    return save


def plan_with(make_sweep, path):
    grid = {"path": [str(path)], "learning_rate": [0.01]}
    return make_plan(make_sweep(methods=[MethodChoice(name="learned", grid=grid)])).jobs


@pytest.mark.filterwarnings("ignore:a batch of 10")
def test_a_cell_runs_the_learned_objective(make_sweep, saved):
    path = saved(0, temperature=2.0)
    job = plan_with(make_sweep, path)[0]
    assert job.cell.options["digest"] == LearnedObjective.load(path).digest
    assert job.cell.temperature == 2.0
    record = run_job(job)
    assert record.status == "done", record
    checkpoint, shifts = ingredients(job)
    model = fenchel.adapt(
        checkpoint.model, objective=LearnedObjective.load(path), learning_rate=0.01
    )
    wrong = [
        int((model(batch.inputs).argmax(-1) != batch.reveal_labels()).sum())
        for batch in Stream(shifts=shifts, batch_size=25, limit=60)
    ]
    assert record.batch_wrong == tuple(wrong)


def test_the_content_of_the_file_is_part_of_the_cells_key(make_sweep, saved):
    (first, *_), (second, *_) = (plan_with(make_sweep, saved(seed)) for seed in (0, 1))
    assert first.cell.key != second.cell.key


def test_a_file_that_changed_after_planning_is_a_failure(make_sweep, saved):
    job = plan_with(make_sweep, saved(0))[0]
    saved(1)
    record = run_job(job)
    assert record.status == "failed"
    assert "must be the one with digest" in record.error


def test_a_sweep_file_names_the_path(saved, network, tmp_path):
    text = f"""
checkpoints = ["{network}"]
[[data]]
name = "sklearn-digits"
corruptions = ["fog"]
[[methods]]
name = "learned"
path = "{saved(0)}"
learning_rate = [1e-3, 1e-2]
"""
    (tmp_path / "sweep.toml").write_text(text)
    (choice,) = read_sweep(tmp_path / "sweep.toml").methods
    assert choice.name == "learned"
    assert choice.grid["path"] == [str(tmp_path / "learned.safetensors")]
