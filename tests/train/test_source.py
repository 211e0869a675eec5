"""Training: it learns with every loss, is a function of its seed, and cannot see the test set."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from fenchel.data import from_arrays
from fenchel.losses import LOSSES, ExponentialLoss, Signed, SquaredLoss, parse
from fenchel.models import MODELS, build, load_checkpoint
from fenchel.models.weights import load_parameters
from fenchel.train import Recipe, TrainingRun, preset, source, state, train
from fenchel.train.reporting import Reporter

SPECS = [name for name in LOSSES if not isinstance(LOSSES[name].labels, Signed)]


def weights(result):
    return load_checkpoint(result.path).digest


@pytest.mark.parametrize("spec", SPECS)
def test_every_loss_of_the_library_trains(make_run, spec):
    try:
        loss = parse(spec)
    except (TypeError, ValueError):
        pytest.skip("needs a function as its argument")
    run = make_run(
        loss=loss, recipe_epochs=8, recipe_schedule="one-cycle", model_arguments={"width": 8}
    )
    result = train(run)
    assert result.history[-1]["train_loss"] < 0.8 * result.history[0]["train_loss"]
    assert result.metrics["test_accuracy"] > 0.6


def test_the_three_losses_of_the_paper_learn_the_digits_well(make_run):
    for spec in ("cross-entropy", "poly:epsilon=6", "squared"):
        recipe = preset("embedded").replace(epochs=12)
        run = make_run(spec, loss=parse(spec), recipe=recipe, model_arguments={"width": 16})
        assert train(run).metrics["test_accuracy"] > 0.93, spec


def test_the_checkpoint_tells_how_it_was_trained(make_run, digits):
    run = make_run(loss=parse("poly:epsilon=6"), seed=3)
    checkpoint = load_checkpoint(train(run).path)
    metadata = checkpoint.metadata
    assert parse(checkpoint.loss_spec) == run.loss
    assert checkpoint.classes == digits[0].classes
    assert metadata.architecture == "digit_network"
    assert metadata.arguments["width"] == 4
    assert (metadata.data, metadata.data_digest) == ("digits", digits[0].digest)
    assert metadata.recipe["epochs"] == 2
    assert metadata.recipe["seed"] == 3
    assert metadata.epoch == 2
    assert 0 < metadata.metrics["test_accuracy"] <= 1
    pixels = digits[0].read(np.arange(600)) / 255
    assert checkpoint.preprocessing["mean"] == pytest.approx([pixels.mean()], abs=1e-5)
    assert checkpoint.preprocessing["std"] == pytest.approx([pixels.std()], abs=1e-5)


def test_same_seed_same_bytes_and_another_seed_other_weights(make_run):
    first, again, other = (
        train(make_run(name, seed=seed)).path.read_bytes()
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert first == again
    assert first != other


def test_the_callers_random_state_does_not_matter_and_is_left_alone(make_run):
    torch.manual_seed(1)
    first = train(make_run("first"))
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    second = train(make_run("second"))
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.path.read_bytes() == second.path.read_bytes()


def test_models_that_draw_themselves_are_seeded_too(make_run, monkeypatch):
    class Dropping(torch.nn.Sequential):
        def __init__(self, *, features: int, classes: int) -> None:
            layer = torch.nn.Linear(features, classes)
            super().__init__(torch.nn.Flatten(), torch.nn.Dropout(0.5), layer)

    monkeypatch.setitem(MODELS._things, "dropping", Dropping)
    runs = [make_run(n, model="dropping", model_arguments={}) for n in ("first", "second")]
    results = []
    for run in runs:
        torch.rand(7)  # the global generator stands elsewhere each time
        results.append(train(run).path.read_bytes())
    assert results[0] == results[1]


def test_the_test_set_cannot_reach_the_weights(make_run, digits):
    inputs, labels = digits[1].read(np.arange(len(digits[1]))), digits[1].labels
    scrambled = from_arrays("digits", inputs[::-1].copy(), (labels + 1) % 10)
    for choice in ({}, {"recipe_held_out": 0.2, "recipe_keep": "best"}):
        results = [
            train(make_run(f"{len(choice)}{name}", test=test, **choice))
            for name, test in (("real", digits[1]), ("scrambled", scrambled), ("none", None))
        ]
        assert len({weights(result) for result in results}) == 1


def test_the_best_epoch_is_chosen_on_held_out_training_images(make_run):
    # A rate so high that accuracy jumps about: the best epoch is not the last.
    run = make_run(
        recipe_epochs=8,
        recipe_learning_rate=3.0,
        recipe_schedule="constant",
        recipe_held_out=0.25,
        recipe_keep="best",
        seed=1,
    )
    result = train(run)
    scores = [row["held_out_accuracy"] for row in result.history]
    metadata = load_checkpoint(result.path).metadata
    assert metadata.epoch == 1 + int(np.argmax(scores))
    assert metadata.epoch < 8
    assert metadata.metrics["held_out_accuracy"] == max(scores)


def test_held_out_images_are_not_trained_on(make_run, digits):
    inputs, labels = digits[0].read(np.arange(600)).copy(), digits[0].labels.copy()
    run = make_run("first", recipe_held_out=0.25)
    _, held_out = source.hold_out(source.hold(digits[0], torch.device("cpu")), 0.25, run.seed)
    assert len(held_out) == 150
    labels[held_out.rows] = (labels[held_out.rows] + 1) % 10
    changed = from_arrays("digits", inputs, labels, split="train")
    first, second = train(run), train(make_run("second", data=changed, recipe_held_out=0.25))
    assert weights(first) == weights(second)
    assert first.history[-1]["held_out_accuracy"] != second.history[-1]["held_out_accuracy"]


class Interruption(Reporter):
    """Ends the run after some steps, as a signal would."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, images: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Counter(Reporter):
    """Counts the steps."""

    steps = 0

    def step(self, images: int) -> None:
        self.steps += 1


@pytest.fixture
def every_step(monkeypatch):
    """Save after every step, whatever share of the time that takes."""
    monkeypatch.setattr(source, "SAVING_SHARE", 1e9)


@pytest.mark.parametrize(
    "changes", [{}, {"recipe_optimizer": "adam", "recipe_learning_rate": 0.01}]
)
@pytest.mark.parametrize("steps", [1, 5, 9, 10, 17, 18])
def test_an_interrupted_run_continues_to_the_same_bytes(make_run, every_step, steps, changes):
    whole = make_run("whole", recipe_held_out=0.2, recipe_keep="best", **changes)
    cut = make_run("cut", recipe_held_out=0.2, recipe_keep="best", save_seconds=0, **changes)
    expected = train(whole)
    with pytest.raises(KeyboardInterrupt):
        train(cut, Interruption(steps))
    assert not (cut.out / "checkpoint.safetensors").exists()
    rest = Counter()
    result = train(cut, rest)
    assert rest.steps == 18 - (steps - 1)  # the step under way is the only one lost
    assert result.path.read_bytes() == expected.path.read_bytes()
    assert result.history == expected.history
    assert not (cut.out / state.FILE_NAME).exists()


def test_a_finished_run_is_not_trained_again(make_run):
    run = make_run()
    first = train(run)
    stamp = first.path.stat().st_mtime_ns
    second = train(run, Interruption(1))
    assert second == first
    assert second.path.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_with_another_run_is_refused(make_run, finished):
    run = make_run(save_seconds=0)
    if finished:
        train(run)
    else:
        with pytest.raises(KeyboardInterrupt):
            train(run, Interruption(5))
    other = make_run(loss=SquaredLoss(), recipe_epochs=3, seed=4)
    with pytest.raises(ValueError, match=r"epochs=2 \(now 3\).*loss=.*seed=0 \(now 4\)"):
        train(other)


def test_a_run_keeps_the_threads_it_was_started_with(make_run):
    run = make_run(save_seconds=0, threads=1)
    with pytest.raises(KeyboardInterrupt):
        train(run, Interruption(5))
    result = train(dataclasses.replace(run, threads=None))
    assert load_checkpoint(result.path).metadata.recipe["threads"] == 1


def test_a_damaged_state_is_reported_and_kept(make_run):
    run = make_run()
    run.out.mkdir()
    (run.out / state.FILE_NAME).write_bytes(b"half a file")
    with pytest.raises(ValueError, match="Delete it to start the run again"):
        train(run)
    assert (run.out / state.FILE_NAME).read_bytes() == b"half a file"


def test_two_processes_do_not_train_in_one_folder(make_run):
    run = make_run()
    with state.exclusive(run.out), pytest.raises(ValueError, match="another one is at work"):
        train(run)


def test_an_infinite_loss_ends_the_run_and_is_never_saved(make_run):
    run = make_run(
        loss=SquaredLoss(),
        recipe_learning_rate=1e9,
        recipe_clip_norm=None,
        recipe_schedule="constant",
        save_seconds=0,
    )
    with pytest.raises(ValueError, match="Lower the learning rate"):
        train(run)
    file = run.out / state.FILE_NAME
    if file.exists():
        _, tensors = state._read(file)
        assert all(t.isfinite().all() for n, t in tensors.items() if n == "totals")


def test_data_read_on_demand_give_the_same_weights(make_run, monkeypatch):
    held = train(make_run("held"))
    monkeypatch.setattr("fenchel.train.examples.MEMORY_LIMIT", 10)
    assert train(make_run("lazy")).path.read_bytes() == held.path.read_bytes()


def test_limit_trains_on_the_first_examples_only(make_run, digits):
    inputs, labels = digits[0].read(np.arange(100)), digits[0].labels[:100]
    part = from_arrays("digits", inputs, labels, classes=digits[0].classes, split="train")
    assert weights(train(make_run("limit", limit=100))) == weights(train(make_run("a", data=part)))


def test_models_learn_their_image_size_and_channels_from_the_data(make_run):
    recipe = {"recipe_epochs": 1, "recipe_augmentation": "pad-crop:padding=0,size=6,flip=False"}
    arguments = {"patch_size": 3, "width": 16, "depth": 1, "heads": 2}
    run = make_run("vit", model="vit_small", model_arguments=arguments, **recipe)
    assert load_checkpoint(train(run).path).metadata.arguments["image_size"] == 6
    run = make_run("linear", model="linear", model_arguments={}, **recipe)
    assert load_checkpoint(train(run).path).metadata.arguments["features"] == 36


def test_a_linear_classifier_learns_gaussians_with_the_exponential_loss(tmp_path):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 4000)
    centre = generator.normal(size=100) / 5
    inputs = generator.normal(size=(4000, 100)) + np.where(labels[:, None], centre, -centre)
    clouds = [
        from_arrays("clouds", inputs[rows].astype(np.float32), labels[rows], classes=("-1", "+1"))
        for rows in (slice(0, 3000), slice(3000, 4000))
    ]
    result = train(
        TrainingRun(
            data=clouds[0],
            test=clouds[1],
            model="linear",
            loss=ExponentialLoss(),
            recipe=preset("linear"),
            out=tmp_path,
            threads=1,
        )
    )
    best_possible = ((inputs[3000:] @ centre > 0) == labels[3000:]).mean()
    assert result.metrics["test_accuracy"] > best_possible - 0.02
    model = load_checkpoint(result.path).model
    assert model(torch.zeros(1, 100)).shape == (1, 1)


def test_an_exponential_loss_needs_two_classes(make_run):
    with pytest.raises(ValueError, match="two classes by one score; the data have 10"):
        train(make_run(loss=ExponentialLoss()))


def test_a_batch_larger_than_the_data_is_the_whole_data(make_run):
    result = train(make_run(recipe=Recipe(epochs=1, batch_size=4096)))
    assert len(result.history) == 1


def test_training_may_begin_with_the_weights_of_another_run(make_run, tmp_path):
    first = train(make_run("first", recipe_epochs=6))
    begun = make_run("begun", weights=first.path, recipe_epochs=1, recipe_learning_rate=1e-9)
    again = train(begun)
    assert again.metrics["test_accuracy"] == pytest.approx(first.metrics["test_accuracy"], abs=0.02)
    assert again.metrics["test_accuracy"] > train(make_run("none")).metrics["test_accuracy"]
    assert load_checkpoint(again.path).metadata.recipe["started_from"]
    assert "started_from" not in load_checkpoint(first.path).metadata.recipe
    with pytest.raises(ValueError, match="started_from"):
        train(dataclasses.replace(begun, weights=again.path))


def test_networks_of_another_normalisation_may_begin_with_them(tmp_path):
    batch, group = (
        build("resnet26", classes=3, **more) for more in ({}, {"normalization": "group"})
    )
    file = tmp_path / "batch.pt"
    torch.save(batch.state_dict(), file)
    load_parameters(group, file)
    theirs = dict(batch.named_parameters())
    for name, value in group.named_parameters():
        torch.testing.assert_close(value, theirs[name])
    other = build("resnet26", classes=4)
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"of another shape: .*fc"):
        load_parameters(other, file)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(value, before[name])
