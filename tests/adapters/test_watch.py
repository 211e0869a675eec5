"""The watch over a stream: what it says, what it does, and that it costs little and changes nothing else."""

from __future__ import annotations

import copy
import itertools
import logging
import pickle
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters import Adapter
from fenchel.adapters.correlated import CORRELATION, MIXED
from fenchel.adapters.harm import Detector, HarmWarning, Report
from fenchel.adapters.monitor import Thresholds
from fenchel.adapters.suited import RUNS, SAMPLES
from fenchel.adapters.watch import LEAP, NEAR, distance
from fenchel.objectives import Objective

CLASSES = 6
DIRECTIONS = torch.linalg.qr(
    torch.randn(12, 12, generator=torch.Generator().manual_seed(4)).double()
)[0][:CLASSES]


def network() -> nn.Sequential:
    """A classifier of points about six directions, normalised twice, right on nearly all of them."""
    model = nn.Sequential(
        nn.BatchNorm1d(12), nn.Linear(12, CLASSES, bias=False), nn.BatchNorm1d(CLASSES)
    )
    model = model.double()
    x, _ = points(4000, seed=99)
    with torch.no_grad():
        model[0].running_var.copy_(x.var(0)), model[0].running_mean.copy_(x.mean(0))
        model[1].weight.copy_(DIRECTIONS)
        inner = model[1](model[0].eval()(x))
        model[2].running_var.copy_(inner.var(0)), model[2].running_mean.copy_(inner.mean(0))
        model[2].weight.fill_(3.0)
    return model.eval()


def points(count: int, *, seed: int = 0, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if labels is None:
        labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randn(count, 12, generator=generator, dtype=torch.float64)
    return 3 * DIRECTIONS[labels] + 0.6 * noise, labels


def stream(count: int, size: int = 50, seed: int = 0) -> list[Tensor]:
    return [points(size, seed=seed + number)[0] for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class Greedy(Objective):
    """Wants the first class everywhere: predictions collapse for certain."""

    def value(self, h: Tensor) -> Tensor:
        return -h.log_softmax(-1)[..., 0]


def collapsing(**options: Any) -> Adapter:
    """An adapter that would predict one class after a few batches."""
    settings = {
        "objective": Greedy(),
        "optimizer": "adam",
        "learning_rate": 0.7,
        "protect": "watch",
        **options,
    }
    return fenchel.adapt(network(), **settings)


@contextmanager
def heard():
    """The warnings about harm in the block."""
    found: list[HarmWarning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found += [each.message for each in caught if isinstance(each.message, HarmWarning)]


def error(adapted: Any, seeds: range, size: int = 50) -> float:
    wrong = 0
    for seed in seeds:
        x, labels = points(size, seed=seed)
        wrong += int((adapted(x).argmax(-1) != labels).sum())
    return 100 * wrong / (size * len(seeds))


# --- what it says --------------------------------------------------------------------------------


def test_a_collapse_is_told_once_per_change_of_the_verdict_with_its_facts():
    told: list[HarmWarning] = []
    reports: list[Report] = []
    adapted = collapsing(on_verdict=told.append, on_batch=reports.append)
    with heard() as found:
        for x in stream(12):
            adapted(x)
    assert len(reports) == 12
    assert [report.batch for report in reports] == list(range(12))
    verdicts = ["healthy", *(report.verdict for report in reports)]
    changes = [
        (number, verdict)
        for number, (before, verdict) in enumerate(itertools.pairwise(verdicts))
        if before != verdict
    ]
    assert [(each.batch, each.verdict) for each in told] == changes
    assert verdicts[-1] == "collapsed"
    assert [each.args for each in found] == [
        each.args for each in told if each.verdict != "healthy"
    ]
    last = told[-1]
    assert "few classes" in last.reason
    assert last.action == ""
    assert str(last) == f"collapsed at batch {last.batch}: {last.reason}."
    assert isinstance(last, fenchel.AdaptationWarning)
    health = adapted.health()
    assert health.verdict == "collapsed"
    assert "few classes" in health.reason
    assert (health.pulled_back, health.resets, health.fell_back) == (0, 0, 0)
    assert health.signals == reports[-1].signals


def test_a_warning_that_is_an_error_leaves_a_consistent_stream():
    """Whoever turns warnings into errors loses an output, and nothing else."""
    raising, quiet = collapsing(protect="auto"), collapsing(protect="auto")
    raised = 0
    for x in stream(8):
        with heard():
            quiet(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                raising(x)
            except HarmWarning:
                raised += 1
    assert raised > 0
    assert raising.health() == quiet.health()
    for name, value in quiet.state.parameters.items():
        assert torch.equal(value, raising.state.parameters[name])


def test_a_warning_can_be_sent_to_another_process():
    said = HarmWarning("collapsed", "one class", 7, "reset")
    again = pickle.loads(pickle.dumps(said))
    assert str(again) == str(said)
    assert vars(again) == vars(said)
    assert "last healthy parameters" in str(said)


def test_the_signals_are_those_of_the_predictions():
    reports: list[Report] = []
    model = network()
    adapted = fenchel.adapt(
        model, trained_with="cross-entropy", protect="watch", on_batch=reports.append
    )
    x = stream(1)[0]
    p, q = adapted(x).softmax(-1), model(x).detach().softmax(-1)
    signals = reports[0].signals

    def entropy(p: Tensor) -> Tensor:
        return -torch.special.xlogy(p, p).sum(-1)

    for prefix, each in (("", p), ("source_", q)):
        assert signals[f"{prefix}entropy"] == pytest.approx(float(entropy(each).mean()))
        assert signals[f"{prefix}marginal_entropy"] == pytest.approx(float(entropy(each.mean(0))))
        assert signals[f"{prefix}confidence"] == pytest.approx(float(each.amax(-1).mean()))
    same = (p.argmax(-1) == q.argmax(-1)).double().mean()
    assert signals["agreement"] == pytest.approx(float(same))
    assert signals["estimated_error"] == pytest.approx(100 - 100 * float(p.amax(-1).mean()))
    apart = sum(
        float((value - adapted.step.source[name]).square().sum())
        for name, value in adapted.state.parameters.items()
    )
    size = sum(float(value.square().sum()) for value in adapted.step.source.values())
    assert signals["parameter_distance"] == pytest.approx((apart / size) ** 0.5)


class Alarm:
    """As river's detectors are: notices the third value."""

    def __init__(self) -> None:
        self.values: list[float] = []

    @property
    def drift_detected(self) -> bool:
        return len(self.values) == 6

    def update(self, x: float) -> None:
        self.values.append(x)


def test_a_detector_is_fed_the_entropy_and_asks_for_a_comparison():
    alarm = Alarm()
    assert isinstance(alarm, Detector)
    adapted = fenchel.adapt(
        network(), trained_with="cross-entropy", protect="watch", on_batch=alarm
    )
    compared, entropies = [], []
    for x in stream(6):
        output = adapted(x)
        p = output.softmax(-1)
        entropies.append(float(-torch.special.xlogy(p, p).sum(-1).mean()))
        compared.append(adapted._own.watch.beside is not None)
    assert alarm.values == pytest.approx(entropies)
    assert compared == [True, True, True, True, False, True]  # four at first, then on the alarm
    assert adapted.health().drifts == 1


def test_every_session_has_a_detector_of_its_own():
    alarm = Alarm()
    adapted = fenchel.adapt(
        network(), trained_with="cross-entropy", protect="watch", on_batch=alarm
    )
    for x in stream(2):
        adapted(x)
    other = adapted.session()
    for x in stream(6):
        other(x)
    assert len(alarm.values) == 2
    assert (adapted.health().drifts, other.health().drifts) == (0, 1)


# --- what it changes -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["conjugate", "eta", "bn"])
@pytest.mark.parametrize("statistics", ["batch", "auto"])
def test_a_watch_alone_changes_no_output(method, statistics):
    options = {"trained_with": "cross-entropy", "method": method, "statistics": statistics}
    bare, watched = (
        fenchel.adapt(network(), protect=protect, **options) for protect in (False, "watch")
    )
    for x in stream(4, 20):
        assert torch.equal(bare(x), watched(x))
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_a_healthy_stream_is_rarely_compared():
    model = network()
    adapted = fenchel.adapt(model, trained_with="cross-entropy")
    compared = []
    for number, x in enumerate(stream(40)):
        adapted(x)
        if adapted._own.watch.beside is not None:
            compared.append(number)
    assert compared == [0, 1, 2, 3, 16, 32]
    health = adapted.health()
    assert health.verdict == "healthy"
    assert (health.pulled_back, health.resets, health.fell_back) == (0, 0, 0)


# --- what it does --------------------------------------------------------------------------------


def ruin(adapted: Adapter) -> None:
    """The parameters in ruins, as the worst of streams would leave them."""
    ruined = {name: value.clone() for name, value in adapted.state.parameters.items()}
    ruined["2.bias"][0] += 40
    adapted.state = replace(adapted.state, parameters=ruined)


def test_a_collapse_is_undone_and_counted(caplog):
    told: list[HarmWarning] = []
    adapted = collapsing(
        protect="auto", learning_rate=1e-3, on_verdict=told.append, correct_output=False
    )
    with heard(), caplog.at_level(logging.INFO, logger="fenchel"):
        for x in stream(12):
            ruin(adapted)
            output = adapted(x)
            assert adapted._own.watch.latest.action == "reset"
            # The batch is predicted without updates.
            assert len(output.argmax(-1).unique()) == CLASSES
    health = adapted.health()
    assert health.resets == 12
    assert {(each.verdict, each.action) for each in told} == {("collapsed", "reset")}
    assert all("few classes" in each.reason for each in told)
    logged = [record for record in caplog.records if "reset" in record.getMessage()]
    assert len(logged) == health.resets


def test_a_collapse_shows_in_one_batch_of_many_images():
    """Healthy batches before do not hide it; the batch itself is predicted without the ruined parameters."""
    adapted = fenchel.adapt(network(), trained_with="cross-entropy")
    for x in stream(10, size=80):
        adapted(x)
    ruin(adapted)
    with heard() as found:
        at_once = error(adapted, range(90, 91), size=80)
    assert [(each.verdict, each.action) for each in found] == [("collapsed", "reset")]
    assert at_once < 10


def test_a_network_that_says_the_same_of_all_images_does_not_pass_for_a_black_out():
    adapted = fenchel.adapt(network(), trained_with="cross-entropy", protect="auto")
    ruined = {name: value.clone() for name, value in adapted.state.parameters.items()}
    ruined["2.weight"].zero_()
    adapted.state = replace(adapted.state, parameters=ruined)
    with heard() as found:
        output = adapted(stream(1)[0])
    assert [each.verdict for each in found] == ["collapsed"]
    assert len(output.argmax(-1).unique()) == CLASSES
    assert adapted.state.parameters["2.weight"].any()


def test_the_way_back_to_the_source_is_no_step_too_long():
    """A method that resets by itself may."""
    told: list[Report] = []
    adapted = fenchel.adapt(
        network(),
        trained_with="cross-entropy",
        method="rdumb",
        margin=1.0,
        similarity=1.0,
        every=6,
        learning_rate=0.15,
        protect="auto",
        on_batch=told.append,
    )
    apart = []
    for x in stream(7):
        adapted(x)
        apart.append(distance(adapted.state.parameters, adapted.step.source))
    assert max(apart) > 2 * LEAP
    assert min(apart[4:]) < LEAP
    assert {report.action for report in told} == {""}


def in_order(count: int, size: int, per_class: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Batches of one class each, several of every class, with their labels."""
    made = []
    for number in range(count):
        labels = torch.full((size,), number // per_class % CLASSES)
        made.append(points(size, seed=number, labels=labels))
    return made


@pytest.mark.parametrize(
    ("count", "size", "most"), [(12, 100, 0), (24, 30, 0), (120, 4, 48), (300, 1, 48)]
)
def test_runs_that_are_mixed_up_are_noticed_by_the_source(count, size, most):
    """It is sure of few classes where the adapter is unsure of many; of small batches 48 images tell."""
    model, reports = network(), []
    adapted = fenchel.adapt(model, trained_with="cross-entropy", on_batch=reports.append)
    wrong = 0
    for x, labels in in_order(count, size, per_class=max(2, 100 // size)):
        wrong += int((adapted(x).argmax(-1) != labels).sum())
        wrong -= int((model(x).argmax(-1) != labels).sum())
    assert wrong <= most
    if size == 100:  # what is reported is what is returned
        assert reports[0].signals["effective_classes"] < 2
    assert adapted.health().verdict == "healthy"


def test_runs_that_are_mixed_up_are_told_where_nothing_is_done():
    adapted = fenchel.adapt(
        network(), trained_with="cross-entropy", statistics="auto", protect="watch"
    )
    with heard() as found:
        adapted(in_order(1, 100)[0][0])
    assert [each.verdict for each in found] == ["suspect"]
    assert "labels come in runs" in found[0].reason


def test_a_source_that_is_unsure_of_few_classes_is_no_sign_of_runs():
    """As one that fails on a new kind of image."""
    model, adapted = network(), fenchel.adapt(network(), trained_with="cross-entropy")
    offset = 3 * DIRECTIONS[0] + 3 * DIRECTIONS[1]
    for x in (0.3 * x + offset for x in stream(8)):
        adapted(x)
        assert len(model(x).argmax(-1).unique()) < CLASSES / 2
        assert float(adapted.state.seen[RUNS]) == 0
    assert len(adapted(x).argmax(-1).unique()) == CLASSES


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_statistics_of_labels_in_runs_end_with_the_runs():
    """The first mixed batch is predicted as if it were the first of all."""
    options = {"trained_with": "cross-entropy", "learning_rate": 1e-12}
    adapted, fresh = (fenchel.adapt(network(), **options) for _ in range(2))
    for x, _ in in_order(12, 100):
        adapted(x)
    assert float(adapted.state.seen[CORRELATION]) > MIXED
    mixed = stream(1, size=100, seed=70)[0]
    torch.testing.assert_close(adapted(mixed), fresh(mixed))
    assert float(adapted.state.seen[CORRELATION]) < MIXED
    assert float(adapted.state.seen[SAMPLES]) == float(fresh.state.seen[SAMPLES])


def test_suspect_parameters_are_drawn_halfway_to_the_source():
    adapted = collapsing(protect="auto", learning_rate=0.0, correct_output=False)
    adapted(stream(1)[0])
    watch, state = adapted._own.watch, adapted.state
    moved = {name: value + 1 for name, value in state.parameters.items()}
    watch.monitor._window.clear()
    drawn = watch._towards(copy.copy(state), moved, 1.0)
    for name, value in drawn.parameters.items():
        assert torch.equal(value, moved[name])
    halfway = watch._towards(drawn, adapted.step.source, 0.5)
    for name, value in halfway.parameters.items():
        torch.testing.assert_close(value, adapted.step.source[name] + 0.5)
    assert all(not value.any() for value in halfway.moments.values())


def moved_by(adapted: Adapter, factor: float) -> None:
    """Every parameter of the adapter is so many times the source's."""
    far = {name: value * factor for name, value in adapted.step.source.items()}
    adapted.state = replace(adapted.state, parameters=far)


def test_suspect_parameters_that_are_far_away_go_back_until_they_are_near():
    """Halfway back from ruins is still in ruins."""
    adapted = collapsing(protect="auto", learning_rate=0.0, correct_output=False)
    moved_by(adapted, 5.0)
    adapted._own.watch.monitor.thresholds = Thresholds(
        suspect=10.0, collapsed=0.0, collapsed_unmoved=0
    )
    with heard() as found:
        adapted(stream(1)[0])
    assert [each.action for each in found] == ["pulled back"]
    assert distance(adapted.state.parameters, adapted.step.source) == pytest.approx(NEAR)


@pytest.mark.parametrize("statistics", ["batch", "auto"])
def test_a_collapse_takes_the_statistics_with_it_that_entered_under_it(statistics):
    adapted = collapsing(protect="auto", learning_rate=1e-3, statistics=statistics)
    with heard():
        for number, x in enumerate(stream(3)):
            ruin(adapted)
            adapted(x)
            assert adapted.health().resets == number + 1
            left = float(adapted.state.seen[SAMPLES])
            assert left == (0 if statistics == "auto" else 50 * (number + 1))


@pytest.mark.parametrize("statistics", ["batch", "auto"])
def test_a_step_that_leaves_what_the_network_learnt_is_undone(statistics):
    """So no rate ruins a network within a batch, nor for the batches to come."""
    options = {"trained_with": "cross-entropy", "method": "conjugate", "statistics": statistics}
    still = fenchel.adapt(network(), learning_rate=0.0, protect=False, **options)
    told: list[Report] = []
    adapted = fenchel.adapt(
        network(), learning_rate=1e4, protect="auto", on_batch=told.append, **options
    )
    with heard() as found:
        for x in stream(6):
            torch.testing.assert_close(adapted(x), still(x))
    for name, value in adapted.step.source.items():
        assert torch.equal(adapted.state.parameters[name], value)
    assert adapted.health().verdict == "suspect"
    assert adapted.health().pulled_back == 6
    assert len(found) == 1  # once for all batches
    assert "learning rate is too high" in found[0].reason
    assert {report.action for report in told} == {"pulled back"}


@pytest.mark.parametrize("factor", [1.1, 1.5])
def test_correlated_labels_excuse_no_parameters_that_are_far_away(factor):
    """Few classes in use may be those of the stream, but not where the parameters are in ruins."""
    adapted = fenchel.adapt(network(), trained_with="cross-entropy", learning_rate=1e-9)
    for x in stream(3):
        adapted(x)
    moved_by(adapted, factor)
    in_runs = torch.ones((), dtype=torch.float64)
    adapted.state = replace(adapted.state, seen={**adapted.state.seen, CORRELATION: in_runs})
    with heard():
        adapted(stream(4)[-1])
    excused = adapted._own.watch.monitor._window[-1].correlation
    assert excused == (1.0 if factor - 1 < NEAR else 0.0)


@pytest.mark.parametrize("method", ["conjugate", "eta", "sar"])
def test_one_image_several_times_teaches_nothing(method):
    """As of a sensor that blacks out."""
    black = torch.zeros(50, 12, dtype=torch.float64)
    options = {"trained_with": "poly:epsilon=2", "method": method, "learning_rate": 1.0}
    protected, bare = (
        fenchel.adapt(network(), protect=protect, statistics="source", **options)
        for protect in ("auto", False)
    )
    for adapted in (protected, bare):
        adapted(black)
    for name, value in protected.step.source.items():
        assert torch.equal(protected.state.parameters[name], value)
    assert protected.health().samples == 50


def sorted_stream(count: int = 12, size: int = 50) -> list[Tensor]:
    """Batches of one class each."""
    return [
        points(size, seed=number, labels=torch.full((size,), number % CLASSES))[0]
        for number in range(count)
    ]


@pytest.mark.parametrize("method", ["conjugate", "bn"])
def test_batches_of_one_class_under_their_own_statistics_are_noticed(method):
    adapted = fenchel.adapt(
        network(), trained_with="cross-entropy", method=method, statistics="batch", protect="watch"
    )
    with heard() as found:
        for x in sorted_stream():
            adapted(x)
    assert found
    assert adapted.health().verdict != "healthy"


def test_without_updates_the_sources_prediction_is_returned():
    model = network()
    adapted = fenchel.adapt(
        model,
        trained_with="cross-entropy",
        method="bn",
        statistics="batch",
        protect="auto",
        correct_output=False,
    )
    with heard() as found:
        outputs = [adapted(x) for x in sorted_stream()]
    assert adapted.health().fell_back > 0
    assert found[-1].action == "fell back"
    torch.testing.assert_close(outputs[-1], model(sorted_stream()[-1]).detach())


@pytest.mark.parametrize("healthy_before", [0, 10])
def test_a_collapsed_stream_recovers(healthy_before):
    """Parameters in ruins, as the worst of streams would leave them; then benign batches."""
    adapted, fresh = (fenchel.adapt(network(), trained_with="cross-entropy") for _ in range(2))
    for x in stream(healthy_before):
        adapted(x)
    ruin(adapted)
    with heard() as found:
        at_once = error(adapted, range(90, 95))
    later, anew = (error(each, range(100, 120)) for each in (adapted, fresh))
    if healthy_before:  # else the first batch tells, and is predicted without its updates
        assert at_once > anew + 10
    assert found
    assert adapted.health().resets == (0 if healthy_before else 1)
    assert later <= anew + 1
    assert adapted.health().verdict == "healthy"


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_the_default_recovers_after_noise():
    adapted, fresh = (fenchel.adapt(network(), trained_with="cross-entropy") for _ in range(2))
    for _ in range(10):
        adapted(torch.randn(50, 12, dtype=torch.float64) * 4)
    assert error(adapted, range(100, 130)) <= error(fresh, range(100, 130)) + 1


def test_a_reset_of_yours_forgets_the_last_healthy_parameters():
    adapted = collapsing(protect="auto", learning_rate=1e-3)
    for x in stream(3):
        adapted(x)
    watch = adapted._own.watch
    assert watch._healthy is not None
    adapted.reset()
    assert watch._healthy is None
    assert adapted.health().reason == "the adapter was reset"
    assert adapted.health().resets == 1


# --- saving, copying, several streams ------------------------------------------------------------


@pytest.mark.parametrize("protect", ["auto", "watch"])
@pytest.mark.parametrize("at", [2, 5])
def test_saving_in_the_middle_continues_bit_for_bit(protect, at):
    one, other = (collapsing(protect=protect, correct_output=True) for _ in range(2))
    with heard():
        batches = stream(10)
        for x in batches[:at]:
            one(x)
        other.load_state_dict(one.state_dict())
        for x in batches[at:]:
            assert torch.equal(one(x), other(x))
            left, right = one.health(), other.health()
            assert (left.verdict, left.resets, left.pulled_back) == (
                right.verdict,
                right.resets,
                right.pulled_back,
            )
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "made", [copy.deepcopy, lambda adapted: pickle.loads(pickle.dumps(adapted))]
)
def test_a_copy_is_watched_on(made):
    adapted = collapsing()
    with heard():
        for x in stream(8):
            adapted(x)
        twin = made(adapted)
        assert twin.health().verdict == adapted.health().verdict == "collapsed"
        x = stream(1, seed=50)[0]
        assert torch.equal(adapted(x), twin(x))
    assert twin.health() == adapted.health()


def test_a_moved_adapter_goes_back_to_parameters_of_its_own_kind():
    adapted = collapsing(protect="auto", learning_rate=1e-3)
    for x in stream(3):
        adapted(x)
    adapted.float()
    assert {value.dtype for value in adapted._own.watch._healthy.values()} == {torch.float32}


def test_sessions_have_watches_of_their_own():
    adapted = collapsing(learning_rate=0.3)
    good, bad = adapted.session(), adapted.session()
    with heard():
        for x in stream(20):
            bad(x)
    x = stream(1)[0]
    good(x)
    assert bad.health().verdict == "collapsed"
    assert good.health().verdict == "healthy"
    assert adapted.health().batches == 0


@pytest.mark.parametrize(
    ("loss", "scores"), [("binary-cross-entropy", CLASSES), ("exponential", 1)]
)
def test_labels_of_other_kinds_are_no_obstacle(loss, scores):
    model = nn.Sequential(network(), nn.Linear(CLASSES, scores).double())
    adapted = fenchel.adapt(model, trained_with=loss)
    for x in stream(4):
        assert adapted(x).isfinite().all()
    assert adapted.health().verdict == "healthy"
