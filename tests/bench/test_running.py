"""One cell: what it counts, on one thread, and nothing but a record when it fails."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import fenchel
from fenchel.bench import running
from fenchel.bench.plan import make_plan
from fenchel.bench.record import Record
from fenchel.bench.running import run_cell, run_job, seconds_per_sample
from fenchel.bench.sources import (
    LatestReader,
    ModelSource,
    RememberingReader,
    ingredients,
    opened_shift,
)
from fenchel.bench.sweep import DataChoice, MethodChoice, StreamChoice
from fenchel.data.stream import Stream
from fenchel.losses import parse


@pytest.fixture
def jobs(make_sweep):
    return make_plan(make_sweep()).jobs


def by_hand(job):
    """The same run with the public functions alone: batches of (wrong, task loss, place)."""
    cell = job.cell
    checkpoint, shifts = ingredients(job)
    loss = parse(cell.loss)
    settings = {"learning_rate": cell.learning_rate} if cell.learning_rate else {}
    model = fenchel.adapt(checkpoint.model, trained_with=loss, method=cell.method, **settings)
    for batch in Stream(shifts=shifts, batch_size=25, limit=60):
        logits = model(batch.inputs)
        labels = batch.reveal_labels()
        yield logits.argmax(-1) != labels, loss(logits, labels).mean(), batch.reveal_indices()


@pytest.mark.filterwarnings("ignore:a batch of 10")
def test_a_record_counts_what_a_plain_loop_counts(jobs):
    for job in jobs:
        record = run_job(job)
        assert record.status == "done"
        wrong, losses, places = zip(*by_hand(job), strict=True)
        assert record.batch_sizes == (25, 25, 10)
        assert record.batch_wrong == tuple(int(part.sum()) for part in wrong)
        assert record.batch_task_losses == pytest.approx([float(value) for value in losses])
        assert record.samples == 60
        assert record.wrong == sum(record.batch_wrong)
        labels = opened_shift(job.shifts[0]).dataset.labels
        for batch, rows in zip(
            Stream(shifts=[opened_shift(job.shifts[0])], batch_size=25, limit=60),
            places,
            strict=True,
        ):
            assert (labels[rows] == batch.reveal_labels().numpy()).all()
        in_data_order = torch.cat(wrong).numpy()[np.argsort(np.concatenate(places))]
        assert record.is_wrong.tolist() == in_data_order.tolist()
        assert record.shift_wrong == (record.wrong,)


def test_a_record_carries_versions_times_memory_and_health(jobs):
    record = run_job(jobs[-1])
    assert record.versions["torch"] == torch.__version__
    assert record.versions["device"] == "cpu"
    assert record.seconds >= record.timings["adapting_seconds"] > 0
    assert record.peak_memory is None or record.peak_memory > 10**6
    assert record.health == {"updates": 3, "skipped_non_finite": 0, "skipped_none_kept": 0}
    assert any("a batch of 10" in warning for warning in record.warnings)
    assert len(record.order_digest) == 32


def test_a_cell_runs_on_one_thread_and_puts_the_number_back(jobs, monkeypatch):
    seen = []
    forward = torch.nn.Conv2d.forward

    def spying(self, x):
        seen.append(torch.get_num_threads())
        return forward(self, x)

    monkeypatch.setattr(torch.nn.Conv2d, "forward", spying)
    torch.set_num_threads(2)
    try:
        run_job(jobs[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert set(seen) == {1}


def test_labels_are_revealed_after_the_prediction_only(jobs, monkeypatch):
    events = []
    from fenchel.adapters import Adapter
    from fenchel.data.batch import Batch

    forward, reveal = Adapter.forward, Batch.reveal_labels

    def predicting(self, x):
        events.append("predict")
        return forward(self, x)

    def revealing(self):
        events.append("reveal")
        return reveal(self)

    monkeypatch.setattr(Adapter, "forward", predicting)
    monkeypatch.setattr(Batch, "reveal_labels", revealing)
    assert run_job(jobs[-1]).status == "done"
    assert events == ["predict", "reveal"] * 3


def test_whatever_goes_wrong_becomes_a_record(jobs):
    broken = dataclasses.replace(jobs[0], model=ModelSource("nowhere.safetensors"))
    record = run_job(broken)
    assert record.status == "failed"
    assert record.error.startswith("FileNotFoundError: ")
    assert "Traceback" in record.traceback
    assert record.key == jobs[0].cell.key
    assert math.isnan(record.error_percent)


def test_a_checkpoint_that_is_replaced_fails_the_cells_to_come(make_sweep, make_network, tmp_path):
    path = make_network(tmp_path / "network.safetensors")
    first, second = make_plan(make_sweep(checkpoints=[str(path)])).jobs[:2]
    assert run_job(first).status == "done"
    make_network(path, seed=1)
    record = run_job(second)
    assert record.status == "failed"
    assert "the model must not change during a sweep" in record.error
    again = make_plan(make_sweep(checkpoints=[str(path)])).jobs[1]
    assert again.cell.key != second.cell.key
    assert run_job(again).status == "done"


def test_data_that_was_replaced_fails_the_cell(jobs):
    shift = dataclasses.replace(jobs[0].cell.shifts[0], digest="0" * 32)
    cell = dataclasses.replace(jobs[0].cell, shifts=(shift,))
    record = run_job(dataclasses.replace(jobs[0], cell=cell))
    assert "the data must not change" in record.error


def test_the_reset_setting_equals_separate_streams_and_continual_does_not(make_sweep):
    """Why a stream may be cut into a cell a shift exactly when the adapter is reset between them."""
    methods = [MethodChoice(name="conjugate", grid={"learning_rate": [0.5]})]
    continual = StreamChoice(batch_size=25, setting="continual")
    (job,) = make_plan(make_sweep(methods=methods, stream=continual)).jobs
    pair = make_plan(make_sweep(methods=methods)).jobs
    separate = [run_job(one).batch_task_losses for one in pair]
    together = run_job(job)
    assert together.shift_samples == (60, 60)
    assert sum(together.shift_wrong) == together.wrong
    assert together.batch_task_losses[:3] == separate[0]
    assert together.batch_task_losses[3:] != separate[1]
    checkpoint, shifts = ingredients(job)
    reset = run_cell(dataclasses.replace(job.cell, setting="reset"), checkpoint, shifts)
    assert reset.batch_task_losses == (*separate[0], *separate[1])


def test_a_gradual_stream_counts_every_visit(make_sweep):
    data = [DataChoice(name="sklearn-digits", corruptions=["fog"], severities=[1, 5], limit=20)]
    stream = StreamChoice(batch_size=20, setting="gradual")
    sweep = make_sweep(data=data, stream=stream, methods=[MethodChoice(name="source")])
    record = run_job(make_plan(sweep).jobs[0])
    assert record.shift_samples == (40, 20)
    assert len(record.is_wrong) == 60


def test_a_recurring_stream_visits_every_shift_in_every_round(make_sweep):
    stream = StreamChoice(batch_size=30, setting="recurring", rounds=2)
    (job,) = make_plan(make_sweep(stream=stream, methods=[MethodChoice(name="source")])).jobs
    assert (job.cell.rounds, job.samples) == (2, 240)
    record = run_job(job)
    assert record.shift_samples == (120, 120)
    twice = dataclasses.replace(job.cell, rounds=3)
    assert twice.key != job.cell.key


def test_images_that_show_nothing_are_not_counted(make_sweep):
    source = [MethodChoice(name="source")]
    plain, noise, black = (
        make_plan(make_sweep(stream=StreamChoice(batch_size=20, **stream), methods=source)).jobs[0]
        for stream in (
            {"setting": "continual"},
            {"setting": "bursts"},
            {"setting": "bursts", "bursts": "black:every=2,length=1"},
        )
    )
    expected = run_job(plain)
    assert "bursts" not in {name for name, value in vars(plain.cell).items() if value is not None}
    assert (noise.cell.bursts, noise.samples) == ("noise:share=0.2", 150)
    assert (black.cell.bursts, black.samples) == ("black:every=2,length=1", 160)
    for job in (noise, black):
        record = run_job(job)
        assert record.error == ""
        assert (record.samples, record.wrong) == (120, expected.wrong)
        assert (record.shift_samples, record.shift_wrong) == ((60, 60), expected.shift_wrong)
        assert record.is_wrong.tolist() == expected.is_wrong.tolist()
        assert sum(record.batch_sizes) == 120
    assert record.batch_sizes == (20, 20, 0, 20, 20, 0, 20, 20)
    assert [math.isnan(loss) for loss in record.batch_task_losses] == [
        size == 0 for size in record.batch_sizes
    ]
    assert np.isfinite(record.online_error_curve).all()


def test_a_stream_begins_and_ends_with_the_clean_images_of_its_data(make_sweep):
    stream = StreamChoice(batch_size=30, setting="clean-then-shift-then-clean")
    (job,) = make_plan(make_sweep(stream=stream, methods=[MethodChoice(name="source")])).jobs
    assert [shift.title for shift in job.cell.shifts] == ["sklearn-digits", "fog 5", "contrast 5"]
    record = run_job(job)
    assert record.shift_samples == (120, 60, 60)
    clean = DataChoice(name="sklearn-digits", limit=60)
    (alone,) = make_plan(make_sweep(data=[clean], methods=[MethodChoice(name="source")])).jobs
    assert record.shift_wrong[0] == 2 * run_job(alone).wrong
    with pytest.raises(ValueError, match="needs corruptions of a data set"):
        make_plan(make_sweep(data=[clean], stream=stream))


def adapted_by(job, monkeypatch):
    """The arguments with which a cell calls `fenchel.adapt`, and its record."""
    calls = []

    def spying(model, **arguments):
        calls.append(arguments)
        return fenchel.adapt(model, **arguments)

    monkeypatch.setattr(running, "adapt", spying)
    record = run_job(job)
    assert record.error == ""
    (call,) = calls
    return call, record


def test_cells_state_the_bare_step_unless_they_say_how_they_are_protected(make_sweep, monkeypatch):
    methods = [MethodChoice(name="conjugate"), MethodChoice(name="bn")]
    for job in make_plan(make_sweep(methods=methods)).jobs[:2]:
        call, _ = adapted_by(job, monkeypatch)
        assert (call["method"], call["protect"]) == (job.cell.method, False)
        assert job.cell.protect is None


@pytest.mark.filterwarnings("ignore:a batch of 10")
def test_a_protected_conjugate_is_the_call_without_any_setting(make_sweep, monkeypatch):
    methods = [MethodChoice(name="conjugate", grid={"protect": ["auto"]}, title="default")]
    plan = make_plan(make_sweep(methods=methods))
    assert {request.method for request in plan.requests} == {"default"}
    call, record = adapted_by(plan.jobs[0], monkeypatch)
    trained_with, left = call.pop("trained_with"), {"steps": 1, "episodic": False, "seed": 0}
    assert {name: value for name, value in call.items() if value is not None} == {
        "protect": "auto",
        **left,
    }
    checkpoint, shifts = ingredients(plan.jobs[0])
    plain = fenchel.adapt(checkpoint.model, trained_with=trained_with)
    outputs = [plain(batch.inputs) for batch in Stream(shifts=shifts, batch_size=25, limit=60)]
    labels = [batch.reveal_labels() for batch in Stream(shifts=shifts, batch_size=25, limit=60)]
    wrong = [int((o.argmax(-1) != y).sum()) for o, y in zip(outputs, labels, strict=True)]
    assert record.batch_wrong == tuple(wrong)


def test_what_a_protected_cell_says_is_passed_on(make_sweep, monkeypatch):
    grid = {"protect": ["watch"], "learning_rate": [0.01], "statistics": ["source"]}
    methods = [MethodChoice(name="eta", grid=grid)]
    call, record = adapted_by(make_plan(make_sweep(methods=methods)).jobs[0], monkeypatch)
    assert (call["method"], call["protect"]) == ("eta", "watch")
    assert (call["learning_rate"], call["statistics"]) == (0.01, "source")
    assert call["optimizer"] is call["predict"] is call["parameters"] is None
    again = Record.from_json(json.loads(json.dumps(record.deterministic_json())))
    assert again.key == record.key


def test_eata_learns_from_training_images_of_its_checkpoint(make_sweep, make_network, tmp_path):
    file = make_network(tmp_path / "digits.safetensors", data="sklearn-digits", seed=5)
    methods = [MethodChoice(name="eata:fisher_images=50"), MethodChoice(name="eta")]
    data = [DataChoice(name="sklearn-digits", corruptions=["fog"], limit=50)]
    sweep = make_sweep(data=data, methods=methods, checkpoints=[str(file)])
    eata, eta = (run_job(job) for job in make_plan(sweep).jobs)
    assert eata.error == eta.error == ""
    assert (eata.cell.method, eata.cell.options["fisher_images"]) == ("eata", 50)
    unknown_data = make_plan(make_sweep(data=data, methods=methods[:1])).jobs[0]
    assert "does not say which" in run_job(unknown_data).error


def test_only_classes_that_can_occur_are_predicted(jobs):
    checkpoint, (shift,) = ingredients(jobs[0])
    labels = shift.dataset.labels
    mask = np.arange(10) == labels[0]
    only_one = dataclasses.replace(
        shift,
        dataset=dataclasses.replace(
            shift.dataset, class_mask=mask, labels=np.full_like(labels, labels[0])
        ),
    )
    assert run_cell(jobs[0].cell, checkpoint, [only_one]).wrong == 0


def test_mean_class_accuracy_is_counted_by_class(jobs):
    checkpoint, shifts = ingredients(jobs[0])
    cell = dataclasses.replace(jobs[0].cell, metric="mean-class-accuracy")
    record = run_cell(cell, checkpoint, shifts)
    assert len(record.class_samples) == 10
    assert sum(record.class_samples) == 60
    assert sum(record.class_wrong) == record.wrong


def test_a_signed_loss_predicts_by_the_sign(make_sweep, tmp_path):
    from fenchel.models import Checkpoint, Metadata, build

    arguments = {"features": 100, "classes": 1}
    model = build("linear", **arguments)
    metadata = Metadata(
        architecture="linear", arguments=arguments, loss="exponential", classes=("-1", "+1")
    )
    Checkpoint(model.eval(), metadata).save(tmp_path / "linear.safetensors")
    methods = [
        MethodChoice(name="source"),
        MethodChoice(name="conjugate", grid={"parameters": ["all"]}),
    ]
    sweep = make_sweep(
        data=[DataChoice(name="gaussians:samples=80")],
        checkpoints=[str(tmp_path / "linear.safetensors")],
        methods=methods,
    )
    source, conjugate = (run_job(job) for job in make_plan(sweep).jobs)
    assert (source.error, conjugate.error) == ("", "")
    assert conjugate.health["updates"] == 4
    assert 0 < source.wrong < 80


def test_images_made_on_the_fly_are_made_once(make_sweep):
    (source,) = make_plan(make_sweep()).jobs[0].shifts
    dataset = opened_shift(source).dataset
    assert isinstance(dataset.reader, RememberingReader)
    calls = []

    def counting(indices):
        calls.append(len(indices))
        return dataset.reader.reader(indices)

    reader = RememberingReader(counting, len(dataset))
    rows = np.array([5, 3, 9, 3])
    assert (reader(rows) == dataset.reader.reader(rows)).all()
    assert (reader(np.array([9, 1])) == dataset.reader.reader(np.array([9, 1]))).all()
    assert calls == [3, 1]


def test_the_speed_of_a_cell_is_measured_on_a_few_batches(jobs):
    assert 0 < seconds_per_sample(jobs[-1]) < 1


def test_of_photographs_a_process_keeps_the_latest_shift_alone():
    read = []

    def counting(indices):
        read.append(indices.tolist())
        return np.zeros((len(indices), 4, 4, 3), np.uint8)

    first, second = LatestReader(counting, 10), LatestReader(counting, 10)
    for reader in (first, first, second, first):
        assert reader(np.array([3, 1])).shape == (2, 4, 4, 3)
    assert read == [[1, 3], [1, 3], [1, 3]]  # once while it is the latest, then anew
    assert second._rows is None
