"""The protected update against a plain loop, and the ball that it never leaves."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import plain_torch as plain
import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters.correlated import CLASS_SAMPLES, CLASSES, CORRELATION
from fenchel.adapters.state import State
from fenchel.adapters.suited import RUNS, TRUST
from fenchel.methods.protected import Protected

LONGEST, PULL = 0.003, 0.02


def in_unit_range(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


def length(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float((tensor.detach() ** 2).sum()) for tensor in tensors))


def probabilities(loss: str, logits: Tensor) -> Tensor:
    if loss == "squared":
        found = logits.clamp_min(0)
    else:
        z = logits.softmax(1)
        found = z if loss == "cross-entropy" else z / (1 + 2 * z)
    return found / found.sum(1, keepdim=True).clamp_min(1e-12)


def restated(
    model: nn.Module,
    batches: list[Tensor],
    loss: str,
    optimizer: torch.optim.Optimizer,
    unshown: float,
) -> tuple[list[Tensor], list[int], list[bool]]:
    """Predictions after every update; how many samples counted; whether the step was shortened.

    `unshown` is the share of a step where nothing tells whether the stream has moved.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    source = [p.detach().clone() for p in parameters]
    share = (len(batches[0]) / 64) ** 2
    longest, pull = share * LONGEST * unshown * length(source), share * PULL
    mean = torch.full((plain.CLASSES,), 1 / plain.CLASSES, dtype=torch.float64)
    outputs, kept, shortened = [], [], []
    for x in batches:
        logits = model(x)
        p = probabilities(loss, logits.detach())
        cosine = (p @ mean) / (p.norm(dim=1) * mean.norm()).clamp_min(1e-8)
        different = in_unit_range(1 - cosine)
        sure = in_unit_range(torch.special.xlogy(p, p).sum(1))
        rows = [row for row in range(len(x)) if different[row] >= different.mean()]
        weights = torch.exp(3 * different * sure)
        values = plain.TERMS[loss](logits)
        optimizer.zero_grad()
        (sum(weights[row] * values[row] for row in rows) / len(rows)).backward()
        old = [p.detach().clone() for p in parameters]
        optimizer.step()
        with torch.no_grad():
            steps = [p - value for p, value in zip(parameters, old, strict=True)]
            factor = min(1.0, longest / length(steps))
            for p_, value, step, home in zip(parameters, old, steps, source, strict=True):
                p_.copy_(home + (1 - pull) * (value - home) + factor * step)
            outputs.append(model(x))
        mean = 0.9 * mean + 0.1 * p.mean(0)
        kept.append(len(rows))
        shortened.append(factor < 1)
    return outputs, kept, shortened


def made(rate: float, name: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9, nesterov=True)


@pytest.mark.filterwarnings("ignore::fenchel.adapters.UnboundedObjectiveWarning")
@pytest.mark.parametrize(
    ("norm", "statistics"), [("batch", "batch"), ("batch", "source"), ("layer", "batch")]
)
@pytest.mark.parametrize(
    ("loss", "optimizer", "rate"),
    [
        ("cross-entropy", "adam", 1e-3),
        ("cross-entropy", "adam", 1e-1),
        ("poly:epsilon=2", "sgd", 1e-3),
        ("squared", "adam", 1e-3),
    ],
)
def test_it_is_the_plain_loop(make_network, norm, statistics, loss, optimizer, rate):
    batches, source = plain.stream(), make_network(norm)
    model = copy.deepcopy(source)
    if statistics == "batch":
        plain.in_place(model)
    parameters = plain.affine(model)
    unshown = 1 / 8 if norm == "layer" else 1 / 4
    torchs = made(rate, optimizer, parameters)
    wanted, kept, shortened = restated(model, batches, loss, torchs, unshown)
    assert 0 < sum(kept) < 16 * len(batches)
    if rate > 1e-2:
        assert all(shortened)
    adapted = fenchel.adapt(
        source,
        trained_with=loss,
        method="protected",
        statistics=statistics,
        optimizer=optimizer,
        learning_rate=rate,
        predict="after",
    )
    plain.agree(adapted, [adapted(x) for x in batches], model, wanted)


def away(adapted: nn.Module) -> float:
    source = dict(adapted.model.named_parameters())
    moved = adapted.state.parameters
    return length([value - source[name] for name, value in moved.items()]) / length(
        [source[name] for name in moved]
    )


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("rate", [1e-3, 1.0, 1e6])
def test_no_rate_leaves_the_ball(make_network, norm, optimizer, rate):
    adapted = fenchel.adapt(
        make_network(norm),
        trained_with="poly:epsilon=2",
        method="protected:longest=0.05,pull=0.2",
        statistics="batch",
        optimizer=optimizer,
        learning_rate=rate,
    )
    farthest = 0.0
    for x in plain.stream(30):
        before = adapted.state.parameters
        assert adapted(x).isfinite().all()
        farthest = max(farthest, away(adapted))
        step = [value - before[name] for name, value in adapted.state.parameters.items()]
        assert length(step) <= (0.05 + 0.2 * 0.25) * length(list(adapted.step.source.values()))
    assert 0 < farthest <= 0.05 / 0.2 * (1 + 1e-12)
    if rate > 1:
        assert farthest > 0.05 / (8 if norm == "layer" else 4)  # the bound was needed


def test_the_source_pulls_back_where_nothing_else_does(make_network):
    adapted = fenchel.adapt(
        make_network("layer"), trained_with="cross-entropy", method="protected", learning_rate=0.1
    )
    for x in plain.stream(3):
        adapted(x)
    far = away(adapted)
    still = fenchel.adapt(
        make_network("layer"), trained_with="cross-entropy", method="protected", learning_rate=0.0
    )
    still.load_state_dict(adapted.state_dict())
    for _ in range(5):
        still(plain.stream(1)[0])
    assert away(still) == pytest.approx(far * (1 - 0.02 / 16) ** 5)


@pytest.mark.filterwarnings("ignore::fenchel.adapters.UnboundedObjectiveWarning")
@pytest.mark.parametrize(
    ("loss", "scores"),
    [
        ("exponential", 1),
        ("squared", 1),
        ("binary-cross-entropy", 1),
        ("binary-cross-entropy", 4),
        ("squared", 4),
        ("cross-entropy", 40),
        ("focal", 4),
    ],
)
def test_labels_of_every_kind(make_network, loss, scores):
    adapted = fenchel.adapt(make_network("batch", scores), trained_with=loss)
    source = {name: value.clone() for name, value in adapted.state.parameters.items()}
    for x in plain.stream(3):
        output = adapted(x)
        assert output.shape == (16, scores)
        assert output.isfinite().all()
    assert adapted.health().updates == 3
    assert any(not torch.equal(source[name], v) for name, v in adapted.state.parameters.items())


def test_predictions_that_are_all_the_same_teach_nothing(make_network):
    model = make_network("batch", 20)
    with torch.no_grad():
        model[-1].weight.zero_()
        model[-1].bias.zero_()
        model[-1].bias[3] = 9.0
    adapted = fenchel.adapt(model, trained_with="cross-entropy")
    start = adapted.state
    for x in plain.stream(3):
        assert (adapted(x).argmax(-1) == 3).all()
    assert adapted.health().skipped_none_kept == 3
    for name, value in start.parameters.items():
        assert torch.equal(adapted.state.parameters[name], value)


def test_copies_of_one_image_teach_nothing_and_are_forgotten(make_network):
    """A sensor that blacks out: what comes after it is met as if it had never been."""
    model = make_network("batch")
    adapted, spared = (fenchel.adapt(model, trained_with="cross-entropy") for _ in range(2))
    first = plain.stream(1)[0]
    for each in (adapted, spared):
        each(first)
    for _ in range(5):
        adapted(torch.zeros_like(first))
    for name, value in spared.state.parameters.items():
        assert torch.equal(adapted.state.parameters[name], value)
    for name, value in spared.state.memory.items():
        assert torch.equal(adapted.state.memory[name], value)
    for name in (CORRELATION, CLASSES, CLASS_SAMPLES):
        assert torch.equal(adapted.state.seen[name], spared.state.seen[name])
    assert adapted.health().skipped_none_kept == 5


@pytest.mark.parametrize(
    "option", ["sharpness=0.0", "momentum=2.0", "longest=0.0", "pull=0.0", "pull=1.5"]
)
def test_options_out_of_range_are_refused(make_network, option):
    name = option.partition("=")[0]
    with pytest.raises(ValueError, match=rf"protected needs .*{name}.*got {option}"):
        fenchel.adapt(make_network(), trained_with="poly", method=f"protected:{option}")


def test_it_is_the_default_with_everything_that_belongs_to_it(make_network):
    made_by_default = fenchel.adapt(make_network(), trained_with="poly").settings
    assert type(made_by_default.method).__name__ == "Protected"
    assert made_by_default.optimizer == fenchel.Adam(learning_rate=1e-2)
    assert (made_by_default.statistics, made_by_default.protect) == ("auto", "auto")
    assert made_by_default.correct_output
    named = fenchel.adapt(make_network(), trained_with="poly", method="conjugate").settings
    assert (named.statistics, named.protect, named.correct_output) == ("batch", False, False)
    watched = fenchel.adapt(make_network(), trained_with="poly", protect="watch").settings
    assert watched.method == named.method
    assert watched.optimizer == fenchel.SGD(learning_rate=1e-3)


@pytest.mark.parametrize(("runs", "share"), [(None, 1.0), (0.0, 1.0), (0.25, 0.75), (1.0, 0.0)])
def test_labels_that_come_in_runs_shorten_steps(runs: float | None, share: float) -> None:
    source = {"weight": torch.ones(4)}
    moved = {"weight": torch.ones(4) + torch.tensor([1.0, 0, 0, 0])}
    seen = {} if runs is None else {RUNS: torch.tensor(runs)}
    before = State(source, {}, {}, {}, seen=seen)
    after = State(moved, {}, {}, {})
    passes = SimpleNamespace(source=source, moved=torch.ones(()))
    method = Protected(longest=0.1, pull=0.5)
    allowed = method.allowed(passes, before)  # type: ignore[arg-type]
    found = method.bounded(passes, before, after, 1.0, allowed)  # type: ignore[arg-type]
    step = found["weight"] - source["weight"]
    assert torch.allclose(step, share * torch.tensor([0.2, 0, 0, 0]))


@pytest.mark.parametrize(
    ("moved", "trust", "left"),
    [(None, 1.0, 0.9), (1.0, 1.0, 0.9), (0.5, 1.0, 0.65), (0.0, 1.0, 0.4), (1.0, 0.25, 0.4)],
)
def test_parameters_go_back_where_adapting_is_of_no_use(
    moved: float | None, trust: float, left: float
) -> None:
    source, away = {"weight": torch.zeros(4)}, {"weight": torch.ones(4)}
    state = State(away, {}, {}, {}, seen={TRUST: torch.tensor(trust)})
    passes = SimpleNamespace(
        source=source,
        moved=None if moved is None else torch.tensor(moved),
        network=SimpleNamespace(module=nn.BatchNorm1d(1)),
    )
    method = Protected(pull=0.1)
    allowed = method.allowed(passes, state)  # type: ignore[arg-type]
    found = method.bounded(passes, state, state, 1.0, allowed)  # type: ignore[arg-type]
    torch.testing.assert_close(found["weight"], torch.full((4,), left))


def test_a_stream_that_allows_no_step_leaves_optimiser_and_mean_prediction(make_network):
    adapted = fenchel.adapt(make_network(), trained_with="cross-entropy")
    x = plain.stream()[0] * 3 + 2
    adapted(x)
    state = adapted.state
    kept = (state.moments, state.memory)
    adapted.state = replace(state, seen={**state.seen, RUNS: torch.ones(())})
    adapted(x)
    after = (adapted.state.moments, adapted.state.memory)
    for old, new in zip(kept, after, strict=True):
        assert old
        assert all(torch.equal(old[name], new[name]) for name in old)


def test_all_samples_count_the_same_without_sharpness() -> None:
    p = torch.rand(20, 5).softmax(-1)
    assert torch.equal(Protected(sharpness=None).weights(p, p.mean(0)), torch.ones(20))
    assert not torch.equal(Protected().weights(p, p.mean(0)), torch.ones(20))
