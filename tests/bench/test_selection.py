"""Tuning: the best of the grid, the same budget for all, and no label of the test data in sight."""

import dataclasses

import numpy as np
import pytest

from fenchel.bench.driver import run_plan
from fenchel.bench.executors.serial import Serial
from fenchel.bench.plan import Request, make_plan
from fenchel.bench.record import Record
from fenchel.bench.selection import Grid, final_plan, select, tuning_plan
from fenchel.bench.store import Store
from fenchel.bench.sweep import DataChoice, MethodChoice
from fenchel.bench.tuned import read_tuned
from fenchel.data.corruptions import TEST_CORRUPTIONS, VALIDATION_CORRUPTIONS

SMALL = Grid(learning_rate=(1e-3, 1e-1), temperature=(1.0, 2.0), optimizer=("sgd",))


@pytest.fixture
def sweep(make_sweep):
    methods = [
        MethodChoice(name="source"),
        MethodChoice(name="conjugate", grid={"learning_rate": [7.0]}),
        MethodChoice(name="hard", grid={"threshold": [0.1]}),
    ]
    data = [DataChoice(name="sklearn-digits", corruptions="test", limit=40)]
    return make_sweep(methods=methods, data=data)


def test_the_grid_is_the_papers():
    grid = Grid()
    assert grid.trials == 40
    assert grid.settings() == {
        "learning_rate": (1e-1, 1e-2, 1e-3, 1e-4),
        "temperature": (1, 2, 3, 4, 5),
        "optimizer": ("sgd", "adam"),
    }


def test_every_method_that_adapts_gets_the_same_budget_on_the_validation_corruptions(sweep):
    plan = tuning_plan(sweep, Grid())
    for method in ("conjugate", "hard"):
        cells = [job.cell for job in plan.jobs if job.cell.method == method]
        assert len(cells) == 40 * 4
        assert {cell.shifts[0].name for cell in cells} == set(VALIDATION_CORRUPTIONS)
    assert {job.cell.method for job in plan.jobs} == {"conjugate", "hard"}
    assert {job.cell.options.get("threshold") for job in plan.jobs} == {None, 0.1}


def test_no_test_corruption_is_ever_opened(tmp_path, make_sweep, make_network, monkeypatch):
    """Files of test corruptions whose reading fails the test, and labels that would give them away."""
    from fenchel.bench.sources import opened_file, opened_shift
    from fenchel.data.sets import cifar_c

    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    draws = np.random.default_rng(0)
    np.save(folder / "labels.npy", np.tile(draws.integers(0, 10, 30), 5))
    for name in (*VALIDATION_CORRUPTIONS, *TEST_CORRUPTIONS):
        np.save(folder / f"{name}.npy", draws.integers(0, 256, (150, 32, 32, 3), dtype=np.uint8))
    opened = []
    read = cifar_c.read_corruption

    def spying(path):
        opened.append(path.stem)
        return read(path)

    monkeypatch.setattr(cifar_c, "read_corruption", spying)
    opened_file.cache_clear()
    opened_shift.cache_clear()
    sweep = make_sweep(
        data=[DataChoice(name="cifar10-c", root=str(tmp_path))],
        checkpoints=[str(make_network(tmp_path / "photos.safetensors", channels=3))],
        methods=[MethodChoice(name="conjugate")],
    )
    plan = tuning_plan(sweep, SMALL)
    with Store(tmp_path / "s.sqlite") as store:
        summary = run_plan(plan, store, Serial())
        tuned = select(store.records(), store.requests(), SMALL)
    assert (summary.done, summary.failed) == (16, 0)
    assert tuned.choices[0].trials == 4
    assert set(opened) == set(VALIDATION_CORRUPTIONS)
    make_plan(sweep)  # the spy does see test corruptions when a sweep opens them
    assert set(opened) == set(VALIDATION_CORRUPTIONS) | set(TEST_CORRUPTIONS)


def test_records_of_test_corruptions_are_refused(make_sweep):
    job = make_plan(make_sweep()).jobs[-1]
    record = Record(cell=job.cell, status="done", samples=10, wrong=1)
    with pytest.raises(
        ValueError, match=r"validation corruptions alone .* got sklearn-digits, contrast"
    ):
        select([record], {record.key: [Request(record.key, "conjugate")]}, SMALL)


def test_data_without_validation_corruptions_are_refused(make_sweep):
    sweep = make_sweep(data=[DataChoice(name="sklearn-digits")])
    with pytest.raises(ValueError, match="a shift of its own"):
        tuning_plan(sweep, SMALL)


def test_other_grids_would_break_the_budget(sweep):
    methods = [MethodChoice(name="hard", grid={"threshold": [0.1, 0.2]})]
    with pytest.raises(ValueError, match="same budget"):
        tuning_plan(dataclasses.replace(sweep, methods=methods), SMALL)
    with pytest.raises(ValueError, match="needs a method that adapts"):
        tuning_plan(dataclasses.replace(sweep, methods=[MethodChoice(name="bn")]), SMALL)


def made_up(plan, error_of):
    """Records of a plan with errors by a rule; None fails the cell."""
    for job in plan.jobs:
        wrong = error_of(job.cell)
        if wrong is None:
            yield Record(cell=job.cell, status="failed", error="E")
        else:
            yield Record(cell=job.cell, status="done", samples=100, wrong=wrong)


def asked_of(plan):
    asked = {}
    for name in plan.requests:
        asked.setdefault(name.key, []).append(name)
    return asked


def test_the_smallest_mean_error_wins_and_ties_go_to_the_first(sweep, tmp_path):
    plan = tuning_plan(sweep, SMALL)

    def error_of(cell):
        if cell.method == "hard":
            return 50
        best = (cell.learning_rate, cell.temperature) == (1e-1, 2.0)
        lucky = cell.learning_rate == 1e-3 and cell.shifts[0].name == "spatter"
        return 20 if best else 0 if lucky else 40

    tuned = select(made_up(plan, error_of), asked_of(plan), SMALL)
    conjugate, hard = tuned.choices
    assert conjugate.settings == {"learning_rate": 1e-1, "temperature": 2.0, "optimizer": "sgd"}
    assert conjugate.validation_error == 20
    assert hard.settings == {"learning_rate": 1e-3, "temperature": 1.0, "optimizer": "sgd"}
    assert conjugate.trials == hard.trials == SMALL.trials
    assert tuned.protocol["trials_a_method"] == SMALL.trials
    assert tuned.selection == "tuned on speckle_noise, gaussian_blur, spatter, saturate"
    tuned.write(tmp_path / "tuned.json")
    assert read_tuned(tmp_path / "tuned.json").choices == tuned.choices


def test_the_order_of_summation_breaks_no_tie(sweep):
    """The same four errors at both temperatures, in an order whose sum is smaller in the last bit."""
    plan = tuning_plan(sweep, SMALL)
    wrong = [76, 339, 484, 574]

    def error_of(cell):
        place = VALIDATION_CORRUPTIONS.index(cell.shifts[0].name)
        return wrong[place] if cell.temperature == 1 else wrong[::-1][place]

    records = [dataclasses.replace(record, samples=700) for record in made_up(plan, error_of)]
    for choice in select(records, asked_of(plan), SMALL).choices:
        assert choice.settings["temperature"] == 1


def test_a_final_is_between_the_best_settings_of_every_rate_on_longer_streams(sweep):
    """The rate that wins the short streams collapses in the long ones."""
    short = tuning_plan(sweep, SMALL, limit=20)
    long = tuning_plan(sweep, SMALL, limit=40)

    def early(cell):
        return 10 if cell.learning_rate == 1e-1 else 20 + cell.temperature

    def late(cell):
        return 90 if cell.learning_rate == 1e-1 else 15

    final = final_plan(long, made_up(short, early), asked_of(short), SMALL)
    for method in ("conjugate", "hard"):
        cells = [job.cell for job in final.jobs if job.cell.method == method]
        assert {(cell.learning_rate, cell.temperature) for cell in cells} == {(1e-1, 1), (1e-3, 1)}
        assert len(cells) == 2 * len(VALIDATION_CORRUPTIONS)
        assert {cell.limit for cell in cells} == {40}
    tuned = select(made_up(final, late), asked_of(final), SMALL, screened_on=20)
    assert [choice.settings["learning_rate"] for choice in tuned.choices] == [1e-3, 1e-3]
    assert [choice.trials for choice in tuned.choices] == [2, 2]
    assert tuned.protocol["limit"] == [40]
    assert tuned.protocol["screening_limit"] == 20


def test_a_setting_with_a_failed_cell_is_not_chosen(sweep):
    plan = tuning_plan(sweep, SMALL)

    def error_of(cell):
        if cell.learning_rate == 1e-1:
            return None if cell.shifts[0].name == "spatter" else 0
        return 60

    for choice in select(made_up(plan, error_of), asked_of(plan), SMALL).choices:
        assert choice.settings["learning_rate"] == 1e-3
    with pytest.raises(ValueError, match="every one has a failed cell"):
        select(made_up(plan, lambda cell: None), asked_of(plan), SMALL)
    with pytest.raises(ValueError, match="nothing to choose from"):
        select([], {}, SMALL)


def test_names_of_one_objective_share_their_choice(sweep, cross_entropy_network):
    methods = [MethodChoice(name=name) for name in ("entropy", "soft", "conjugate")]
    sweep = dataclasses.replace(sweep, methods=methods, checkpoints=[str(cross_entropy_network)])
    plan = tuning_plan(sweep, SMALL)
    assert len(plan.jobs) == SMALL.trials * 4
    tuned = select(made_up(plan, lambda cell: 10), asked_of(plan), SMALL)
    assert [choice.method for choice in tuned.choices] == ["conjugate", "entropy", "soft"]
