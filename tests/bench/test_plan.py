"""A sweep becomes cells: every combination once, under keys that do not change."""

import dataclasses
import json

import pytest
import torch

from fenchel.bench.canonical import canonical_settings
from fenchel.bench.plan import make_plan
from fenchel.bench.sweep import DataChoice, MethodChoice, StreamChoice
from fenchel.losses import BinaryCrossEntropy, CrossEntropy, LabelSmoothing, PolyLoss
from fenchel.models.places import RESOLVERS
from fenchel.objectives import Conjugate, Entropy, SoftPseudoLabel


def test_every_combination_becomes_a_cell(make_sweep):
    methods = [
        MethodChoice(name="bn"),
        MethodChoice(
            name="hard", grid={"learning_rate": [1e-3, 1e-2], "threshold": [0.5, 0.75, 0.9]}
        ),
    ]
    data = [DataChoice(name="sklearn-digits", corruptions=["fog", "snow"], severities=[1, 5])]
    plan = make_plan(make_sweep(methods=methods, data=data, seeds=[0, 1, 2]))
    assert len(plan.jobs) == 2 * 2 * 3 * (1 + 2 * 3)
    assert len(set(plan.keys)) == len(plan.jobs)


def test_the_same_sweep_gives_the_same_keys(make_sweep):
    assert make_plan(make_sweep()).keys == make_plan(make_sweep()).keys


def test_limit_and_data_change_the_keys(make_sweep):
    plan = make_plan(make_sweep())
    limited = make_plan(make_sweep(), limit=30)
    assert not set(plan.keys) & set(limited.keys)
    assert {job.samples for job in limited.jobs} == {30}
    assert {job.cell.limit for job in limited.jobs} == {30}


def test_a_limit_beyond_the_data_is_no_limit(make_sweep):
    data = [DataChoice(name="sklearn-digits", corruptions=["fog"])]
    whole = make_plan(make_sweep(data=data))
    assert whole.keys == make_plan(make_sweep(data=data), limit=10**6).keys


@pytest.mark.parametrize("setting", ["continual", "gradual", "mixed"])
def test_other_settings_make_one_cell_of_a_stream(make_sweep, setting):
    data = [DataChoice(name="sklearn-digits", corruptions=["fog", "snow"], severities=[1, 3, 5])]
    sweep = make_sweep(
        data=data, methods=[MethodChoice(name="bn")], stream=StreamChoice(setting=setting)
    )
    (job,) = make_plan(sweep, limit=10).jobs
    assert [shift.title for shift in job.cell.shifts] == [
        f"{name} {severity}" for name in ("fog", "snow") for severity in (1, 3, 5)
    ]
    assert job.samples == (2 * 5 * 10 if setting == "gradual" else 6 * 10)
    assert "6 shifts" in job.cell.shift_title


def test_a_name_with_options_is_a_row_of_its_own(make_sweep, cross_entropy_network):
    names = ("eta", "eta:objective=entropy", "roid:objective=entropy", "roid")
    methods = [MethodChoice(name=name) for name in names]
    plan = make_plan(make_sweep(methods=methods), limit=10)
    assert [name.method for name in plan.requests[:4]] == list(names)
    assert len(plan.jobs) == 2 * 4
    for job in plan.jobs:
        objective = job.cell.options["objective"]
        wanted = {name.method for name in plan.requests if name.key == job.cell.key}
        assert wanted == {
            job.cell.method if objective == "conjugate" else f"{job.cell.method}:objective=entropy"
        }
    equal = make_sweep(methods=methods, checkpoints=[str(cross_entropy_network)])
    cells = {job.cell.key: job.cell for job in make_plan(equal, limit=10).jobs}
    inside = {(cell.method, cell.options["objective"]) for cell in cells.values()}
    assert inside == {("eta", "conjugate"), ("roid", "entropy"), ("roid", "likelihood-ratio")}


def test_a_name_with_options_is_checked():
    with pytest.raises(ValueError, match=r"option of method 'eta'.*'margin'"):
        MethodChoice(name="eta:marginn=0.3")
    with pytest.raises(ValueError, match="given twice"):
        MethodChoice(name="eta:margin=0.3", grid={"margin": [0.4]})


def test_protect_is_part_of_a_cell_only_where_it_is_given(make_sweep):
    def cells(**grid):
        choice = MethodChoice(
            name="conjugate", grid={name: [value] for name, value in grid.items()}
        )
        return make_plan(make_sweep(methods=[choice])).jobs

    bare, stated, protected = cells(), cells(protect=False), cells(protect="auto")
    assert [job.cell.key for job in bare] == [job.cell.key for job in stated]
    assert not {job.cell.key for job in bare} & {job.cell.key for job in protected}
    cell = protected[0].cell
    assert (cell.method, cell.protect, cell.steps) == ("conjugate", "auto", 1)
    open_ones = (cell.optimizer, cell.learning_rate, cell.temperature, cell.statistics)
    assert open_ones == (None,) * 4
    assert (cell.predict, cell.parameters) == (None, None)
    assert cells(protect="auto", learning_rate=0.01)[0].cell.learning_rate == 0.01
    with pytest.raises(ValueError, match="protect must be"):
        cells(protect="all")


def test_a_title_names_a_method_in_tables(make_sweep):
    methods = [
        MethodChoice(name="conjugate", title="slow"),
        MethodChoice(name="conjugate", grid={"learning_rate": [0.1]}, title="fast"),
    ]
    plan = make_plan(make_sweep(methods=methods), limit=10)
    rates = {job.cell.key: job.cell.learning_rate for job in plan.jobs}
    found = {(request.method, rates[request.key]) for request in plan.requests}
    assert found == {("slow", 1e-3), ("fast", 0.1)}


def test_published_settings_are_a_setting_of_a_sweep(make_sweep):
    methods = [MethodChoice(name="eta", grid={"settings": ["cifar10"], "learning_rate": [0.1]})]
    cell = make_plan(make_sweep(methods=methods), limit=10).jobs[0].cell
    assert (cell.optimizer, cell.learning_rate, cell.predict) == ("adam", 0.1, "before")
    plain = make_plan(make_sweep(methods=[MethodChoice(name="sar")]), limit=10).jobs[0].cell
    assert plain.parameters == "but-last:1"


def test_equal_objectives_of_a_cross_entropy_source_run_once(make_sweep, cross_entropy_network):
    names = ("soft", "entropy", "conjugate")
    methods = [MethodChoice(name=name, grid={"temperature": [1, 2]}) for name in names]
    plan = make_plan(make_sweep(methods=methods, checkpoints=[str(cross_entropy_network)]))
    assert len(plan.jobs) == 2 * 2
    for job in plan.jobs:
        assert {name.method for name in plan.requests if name.key == job.cell.key} == set(names)


def test_they_differ_for_a_poly_source(make_sweep):
    methods = [MethodChoice(name=name) for name in ("soft", "entropy", "conjugate")]
    assert len(make_plan(make_sweep(methods=methods)).jobs) == 2 * 3


@pytest.mark.parametrize(
    ("loss", "same"),
    [
        (CrossEntropy(), [Entropy(), SoftPseudoLabel(CrossEntropy())]),
        (
            BinaryCrossEntropy(),
            [Entropy(activation="sigmoid"), SoftPseudoLabel(BinaryCrossEntropy())],
        ),
        (LabelSmoothing(smoothing=0.1), [Entropy()]),
    ],
    ids=["cross-entropy", "binary", "smoothed"],
)
def test_objectives_that_are_merged_have_equal_values_and_gradients(loss, same):
    h = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    merged = Conjugate(loss)(h)
    (gradient,) = torch.autograd.grad(merged.sum(), h)
    for objective in same:
        value = objective(h)
        (its_gradient,) = torch.autograd.grad(value.sum(), h)
        torch.testing.assert_close(value, merged)
        torch.testing.assert_close(its_gradient, gradient)


def test_settings_that_a_method_does_not_use_do_not_matter():
    for method in ("source", "bn"):
        settings = {"learning_rate": 0.5, "temperature": 3.0, "steps": 4, "predict": "before"}
        plain = canonical_settings(method, {}, PolyLoss(epsilon=6.0), {})
        assert canonical_settings(method, settings, PolyLoss(epsilon=6.0), {}) == plain


def test_defaults_are_written_out():
    fields = canonical_settings("hard", {}, PolyLoss(epsilon=6.0), {})
    assert fields["options"] == {"threshold": 0.75}
    explicit = {"threshold": 0.75, "learning_rate": 1e-3, "optimizer": "sgd"}
    assert canonical_settings("hard", explicit, PolyLoss(epsilon=6.0), {}) == fields
    memo = canonical_settings("memo", {}, PolyLoss(epsilon=6.0), {"input_range": [0, 1]})
    assert memo["options"]["input_range"] == [0, 1]


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ({"threshold": [1.5]}, "threshold"),
        ({"treshold": [0.5]}, "Did you mean 'threshold'"),
        ({"learning_rate": [-1.0]}, "learning_rate"),
        ({"optimizer": ["adm"]}, "Did you mean 'adam'"),
        ({"temperature": [0]}, "temperature"),
        ({"steps": [0]}, "steps"),
        ({"statistics": ["bach"]}, "statistics"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(make_sweep, grid, told):
    with pytest.raises(ValueError, match=told):
        make_plan(make_sweep(methods=[MethodChoice(name="hard", grid=grid)]))


def test_a_model_of_other_classes_is_refused(make_sweep):
    data = [DataChoice(name="gaussians:samples=10")]
    with pytest.raises(ValueError, match="agree in the number of classes"):
        make_plan(make_sweep(data=data))


def test_a_missing_checkpoint_is_told_at_once(make_sweep):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.safetensors"):
        make_plan(make_sweep(checkpoints=["nowhere.safetensors"]))


def test_a_checkpoint_may_be_named_by_a_scheme(make_sweep, network, monkeypatch):
    monkeypatch.setitem(RESOLVERS._things, "shelf", lambda name: network.with_name(name))
    by_scheme = make_plan(make_sweep(checkpoints=["shelf:poly.safetensors"]))
    assert by_scheme.keys == make_plan(make_sweep()).keys
    assert by_scheme.jobs[0].cell.checkpoint == "shelf:poly.safetensors"


def test_tuned_settings_come_from_the_file(make_sweep, tmp_path):
    choice = {
        "architecture": "digit_network",
        "loss": "poly:epsilon=6.0",
        "method": "conjugate",
        "settings": {"learning_rate": 0.25, "temperature": 3.0, "optimizer": "adam"},
        "validation_error": 1.0,
        "trials": 40,
    }
    file = tmp_path / "tuned.json"
    values = {
        "format": "fenchel-tuned-1",
        "choices": [choice],
        "protocol": {"corruptions": ["spatter"]},
    }
    file.write_text(json.dumps(values))
    methods = [MethodChoice(name=name, tuned=str(file)) for name in ("conjugate", "source")]
    plan = make_plan(make_sweep(methods=methods))
    cell = plan.jobs[0].cell
    assert (cell.learning_rate, cell.temperature, cell.optimizer) == (0.25, 3.0, "adam")
    assert plan.requests[0].selection == "tuned on spatter"
    with pytest.raises(ValueError, match="unknown tuned method"):
        make_plan(make_sweep(methods=[MethodChoice(name="hard", tuned=str(file))]))
    file.write_text(json.dumps(values | {"format": "x"}))
    with pytest.raises(ValueError, match="tuned settings are a JSON file"):
        make_plan(make_sweep(methods=methods))


def test_jobs_travel_as_plain_values(make_sweep):
    import pickle

    job = make_plan(make_sweep()).jobs[0]
    assert pickle.loads(pickle.dumps(job)) == job
    assert dataclasses.is_dataclass(job)
