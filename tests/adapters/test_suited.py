"""Statistics that suit the batch, against a plain re-statement of the formulas in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fenchel
from fenchel.adapters import Adapter, suited
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.mixing import ThroughBatch, moments

EPS = 1e-5
CHANNELS = 3


def network(dimensions: int = 2, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Two normalised layers with statistics of their own, over inputs of `dimensions` spatial axes."""
    torch.manual_seed(3)
    norm = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dimensions]
    side = 4**dimensions
    between = {
        0: lambda: nn.Linear(CHANNELS, 4),
        1: lambda: nn.Conv1d(CHANNELS, 4, 1),
        2: lambda: nn.Conv2d(CHANNELS, 4, 1),
        3: lambda: nn.Conv3d(CHANNELS, 4, 1),
    }[dimensions]()
    made = nn.Sequential(
        norm(CHANNELS), between, norm(4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * side, 5)
    )
    for layer in (made[0], made[2]):
        layer.running_mean.uniform_(-0.3, 0.3)
        layer.running_var.uniform_(0.5, 1.5)
        nn.init.uniform_(layer.weight, 0.5, 1.5)
        nn.init.uniform_(layer.bias, -0.3, 0.3)
    return made.to(dtype).eval()


def images(
    size: int, *, dimensions: int = 2, seed: int = 0, like: nn.Module | None = None
) -> Tensor:
    """Standard normal pixels, in which images differ; or such as have the source's statistics."""
    generator = torch.Generator().manual_seed(seed)
    shape = (size, CHANNELS, *[4] * dimensions)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x + 0.3 * torch.randn(size, CHANNELS, *[1] * dimensions, generator=generator).double()
    if like is None:
        return x
    axes = [0, *range(2, x.ndim)]
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    over = (1, -1, *[1] * dimensions)
    return (x - mean) / variance.sqrt() * like.running_var.view(over).sqrt() + (
        like.running_mean.view(over)
    )


def still(model: nn.Module, statistics: Any = "auto", **options: Any) -> Adapter:
    """An adapter whose parameters stay where they are."""
    options = {"trained_with": "cross-entropy", "method": "conjugate", **options}
    return fenchel.adapt(model, statistics=statistics, learning_rate=0.0, **options)


def relative(one: Tensor, other: Tensor, floor: Tensor) -> Tensor:
    return 4 * ((one - other) / (one + other + 2 * floor)).pow(2).mean()


def restated(
    model: nn.Sequential,
    batches: list[Tensor],
    independent: list[float] | None = None,
    keen: bool = False,
) -> Iterator[tuple[Tensor, dict[str, Tensor], float]]:
    """The logits of every batch with a graph, the statistics that were used, the samples they stand for.

    How much a batch counts and how far the stream has moved are constants of the gradient.
    """
    known: dict[str, Any] = {}
    samples, recent, lately = 0.0, 0.0, None
    for number, batch in enumerate(batches):
        x, size, used, weight = batch, len(batch), {}, None
        gains, counts = [0.0], [1.0]
        for name, layer in model.named_children():
            if not isinstance(layer, nn.modules.batchnorm._BatchNorm):
                x = layer(x)
                continue
            axes = [0, *range(2, x.ndim)]
            mean = x.mean(axes)
            over = (1, -1, *[1] * (x.ndim - 2))
            variance = (x - mean.view(over)).pow(2).mean(axes)
            source_mean, source_variance = layer.running_mean, layer.running_var
            maps = x.ndim > 2
            unknown = (source_mean, source_variance, 0.2 if maps else 1.0)
            old_mean, old_variance, between = known.get(name, unknown)
            if weight is None:
                share = 1.0 if size >= 64 else size / (size + recent)
                first = (mean.detach(), (variance + mean**2).detach())  # E x and E x²
                lately = (
                    first
                    if lately is None
                    else tuple(
                        (1 - share) * a + share * b for a, b in zip(lately, first, strict=True)
                    )
                )
                recent_variance = lately[1] - lately[0] ** 2
                floor = layer.eps + 0.03 * old_variance.mean()
                change = relative(recent_variance, old_variance, floor) if samples else 0.0
                by_chance = 1.5 / max(size, 64)
                if not maps:
                    by_chance = 3 / max(1.0, samples) + 3 / (
                        size if size > 64 else min(64, recent + size)
                    )
                excess = float(change) - by_chance - 0.03
                kept = samples * math.exp(-30 * max(0.0, excess))
                count = max(1.0, size * (1.0 if independent is None else independent[number]))
                weight = count / (count + kept)
                samples = min(300.0, kept + count)
                recent = min(64.0, recent + size)
            stream_mean = (1 - weight) * old_mean + weight * mean
            # The variance of both together: E x² - (E x)².
            second = (1 - weight) * (old_variance + old_mean**2) + weight * (variance + mean**2)
            stream_variance = second - stream_mean**2
            floor = layer.eps + 0.03 * source_variance.mean()
            with torch.no_grad():
                if size > 1:
                    per_image = x.flatten(2).mean(-1) if x.ndim > 2 else x
                    latest = (per_image.var(0) / (source_variance + floor)).mean()
                    pace = min(1.0, size / 128)
                    between = (1 - pace) * between + pace * latest
                moved = ((stream_mean - source_mean) ** 2 / (source_variance + floor)).mean()
                d = float(moved + relative(stream_variance, source_variance, floor) / 2)
                ratio = (stream_variance + floor) / (source_variance + floor)
                gains.append(float(ratio.log().mean()))
                counts.append(0.7 ** (len(gains) - 2))
                fell = -sum(g * n for g, n in zip(gains, counts, strict=True)) / sum(counts)
                faded = min(1.0, max(0.0, (fell - 0.2) / 0.05))
                c = 0.035 * (1 - max(faded, keen)) + 4 * float(between) / samples
                c += 0.0 if maps else max(0.0, 1 - samples / 64)
                shift = min(1.0, max(0.0, (1 - c / d) / (1 - c / max(1.0, 2 * c))))
            known[name] = stream_mean.detach(), stream_variance.detach(), between
            m = source_mean + shift * (stream_mean - source_mean)
            v = source_variance + shift * (stream_variance - source_variance)
            used[f"{name}.running_mean"], used[f"{name}.running_var"] = m.detach(), v.detach()
            x = (x - m.view(over)) / (v.view(over) + layer.eps).sqrt()
            x = x * layer.weight.view(over) + layer.bias.view(over)
        yield x, used, samples


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


STREAMS = {
    "small batches": [images(size, seed=size) + 0.5 for size in (3, 1, 7, 1, 20, 2)],
    "one by one": [images(1, seed=seed) * 1.5 for seed in range(6)],
    "large batches": [images(70, seed=seed) * 1.4 + 0.3 for seed in range(3)],
    "a change": [images(66, seed=seed) * (1 if seed < 2 else 3) for seed in range(4)],
    "a slow change": [images(9, seed=seed) * (1 if seed < 4 else 2.5) for seed in range(9)],
    "fading": [images(70, seed=seed) * 0.8**seed for seed in range(5)],
    "a constant channel": [
        images(8, seed=seed) * torch.tensor([1.0, 0.0, 2.0]).view(1, 3, 1, 1) for seed in range(3)
    ],
}


@pytest.mark.parametrize("stream", STREAMS)
def test_it_is_the_plain_restatement_over_a_stream(stream):
    model, batches = network(), STREAMS[stream]
    adapted = still(model)
    for x, (logits, used, samples) in zip(batches, restated(model, batches), strict=True):
        close(adapted(x), logits.detach())
        for name, value in used.items():
            close(adapted.state.statistics[name], value)
        assert float(adapted.state.seen[suited.SAMPLES]) == pytest.approx(samples)


def test_keen_statistics_tolerate_no_distance():
    model = network()
    batches = [images(70, seed=seed) * 1.1 + 0.1 for seed in range(3)]
    adapted = still(model)
    one = torch.ones((), dtype=torch.float64)
    adapted.state = replace(adapted.state, seen={suited.KEEN: one})
    for x, (logits, _, _) in zip(batches, restated(model, batches, keen=True), strict=True):
        close(adapted(x), logits.detach())
    tolerant = [logits for logits, _, _ in restated(model, batches)]
    assert not torch.allclose(tolerant[-1].detach(), adapted(batches[-1]), atol=1e-3)


@pytest.mark.parametrize(("times", "holds"), [(1.1, True), (4.0, False)])
def test_what_was_tried_holds_until_most_of_the_past_is_forgotten(times, holds):
    adapted = still(network())
    for seed in range(3):
        adapted(images(70, seed=seed))
    numbers = {suited.KEEN: 1.0, suited.TRUST: 0.25}
    tried = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
    before = float(adapted.state.seen[suited.SAMPLES])
    adapted.state = replace(adapted.state, seen={**adapted.state.seen, **tried})
    adapted(images(70, seed=5) * times)
    kept = float(adapted.state.seen[suited.SAMPLES]) - 70
    assert (kept > before / 2) == holds
    found = {name: float(adapted.state.seen[name]) for name in numbers}
    assert found == (numbers if holds else {suited.KEEN: 0.0, suited.TRUST: 1.0})


@pytest.mark.parametrize("dimensions", [0, 1, 3])
def test_layers_of_every_dimension(dimensions):
    model = network(dimensions)
    batches = [images(size, dimensions=dimensions, seed=size) + 1 for size in (12, 1, 5)]
    adapted = still(model)
    for x, (logits, _, _) in zip(batches, restated(model, batches), strict=True):
        close(adapted(x), logits.detach())


def test_vectors_one_by_one_are_the_plain_restatement():
    """One value says nothing of a variance; that of the stream is known in time."""
    model = network(0)
    batches = [images(1, dimensions=0, seed=seed) * 2 + 3 for seed in range(40)]
    adapted = still(model)
    shares = []
    for x, (logits, _, _) in zip(batches, restated(model, batches), strict=True):
        close(adapted(x), logits.detach())
        shares.append(float(adapted.state.seen[suited.SHIFT]))
    assert shares[-1] > 0.85


def test_a_class_is_no_shift_of_vectors_whose_labels_come_in_runs():
    model = network(0)
    x = images(70, dimensions=0) + 0.3
    alone, in_runs = still(model), still(model)
    one = torch.ones((), dtype=torch.float64)
    in_runs.state = replace(in_runs.state, seen={suited.RUNS: one})
    assert not torch.allclose(alone(x), model(x), atol=0.1)
    torch.testing.assert_close(in_runs(x), model(x).detach())


def test_the_past_is_forgotten_when_the_kind_of_image_changes():
    adapted = still(network())
    for seed in range(4):
        adapted(images(70, seed=seed))
    assert float(adapted.state.seen[suited.SAMPLES]) == pytest.approx(280, rel=0.02)
    adapted(images(70, seed=9) * 4)
    assert float(adapted.state.seen[suited.SAMPLES]) == pytest.approx(70, rel=0.02)
    assert float(adapted.state.seen[suited.CHANGED]) > suited.CHANGE


@pytest.mark.parametrize(
    ("logarithms", "faded"),
    [
        ([-0.4], 0.0),  # half of it, 0.2, may be
        ([-0.45], 0.5),
        ([-1.0], 1.0),
        ([1.0], 0.0),
        ([-0.45, -0.45], 1.0),
        ([-0.45, 0.0], 0.0),
        ([0.0, -0.45, -0.45], 0.0),
    ],
)
def test_variances_that_fell_in_the_first_layers_tell_that_images_faded(logarithms, faded):
    met, source = suited.Meeting({}), torch.ones(8, dtype=torch.float64)
    for logarithm in logarithms:
        found = met.faded(source * math.exp(logarithm), source, source.new_zeros(()))
        met.shifts.append(source[0])
    assert float(found) == pytest.approx(faded, abs=1e-9)


def test_running_statistics_stand_for_so_many_samples_at_most():
    adapted = still(network())
    for _ in range(12):
        adapted(images(100))
    assert float(adapted.state.seen[suited.SAMPLES]) == suited.MEMORY


def test_a_far_first_batch_is_normalised_by_its_own_statistics():
    model, x = network(), images(64) * 4 + 5
    model[2].running_mean.add_(5)
    logits = still(model)(x)
    torch.testing.assert_close(logits, still(model, "batch")(x), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(logits, model(x), atol=0.1)


def test_a_batch_like_the_source_is_normalised_by_the_sources_bit_for_bit():
    model = network()
    x = images(200, like=model[0])
    # Let the second layer's input be its source's as well.
    inner = model[1](model[0](x))
    variance, mean = torch.var_mean(inner, [0, 2, 3], correction=0)
    model[2].running_mean.copy_(mean.detach()), model[2].running_var.copy_(variance.detach())
    adapted = still(model)
    assert torch.equal(adapted(x), still(model, "source")(x))
    for name, value in adapted.state.statistics.items():
        assert torch.equal(value, model.get_buffer(name)), name


@pytest.mark.parametrize("size", [1, 4, 64])
def test_a_small_change_of_the_batch_is_a_small_change_of_the_output(size):
    """From the source's statistics to the batch's, without a jump on the way."""
    model = network()
    base, to = images(size, like=model[0]), 3 * images(size, seed=1) + 2
    steps = torch.linspace(0, 1, 201, dtype=torch.float64)
    outputs = torch.stack([still(model)(torch.lerp(base, to, t)) for t in steps[::10]])
    coarse = (outputs[1:] - outputs[:-1]).abs().amax()
    for start in (0, 40, 90):
        near = torch.stack(
            [still(model)(torch.lerp(base, to, t)) for t in steps[start : start + 2]]
        )
        assert (near[1] - near[0]).abs().amax() < 0.5 * coarse
    tiny = [still(model)(torch.lerp(base, to, torch.tensor(t).double())) for t in (0.3, 0.3 + 1e-7)]
    assert (tiny[1] - tiny[0]).abs().amax() < 1e-5


def test_correlated_samples_count_for_fewer():
    model, batches = network(), [images(32, seed=seed) + 0.6 for seed in range(5)]
    adapted = still(model, correct_output=True)
    independent = []
    for x in batches:
        independent.append(float(adapted.state.seen.get(suited.INDEPENDENT, torch.tensor(1.0))))
        if len(independent) == 2:  # as a sorted stream would have left it
            seen = {**adapted.state.seen, suited.INDEPENDENT: torch.tensor(0.1).double()}
            adapted.state = fenchel.adapters.state.replace(adapted.state, seen=seen)
            independent[-1] = 0.1
        adapted(x)
    *_, (_, used, samples) = restated(model, batches, independent)
    assert float(adapted.state.seen[suited.SAMPLES]) == pytest.approx(samples, rel=1e-6)
    assert samples < 5 * 32 - 20
    for name, value in used.items():
        torch.testing.assert_close(adapted.state.statistics[name], value, rtol=1e-6, atol=1e-7)


# --- the gradient --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["small batches", "large batches", "a slow change"])
@pytest.mark.parametrize("method", ["conjugate", "protected:sharpness=1e9"])
def test_gradients_are_those_of_autograd_through_the_formulas(stream, method):
    model, batches = network(), STREAMS[stream]
    names = [f"{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")]
    adapted = still(model, method=method)
    state = adapted.state
    for x, (logits, _, _) in zip(batches, restated(model, batches), strict=True):
        trace: list[Any] = []
        before, state = state, adapted.step.adapt(state, Inputs((x,), {}), trace=trace)
        ((_, found),) = trace
        p = logits.softmax(-1)
        values = -(p * logits.log_softmax(-1)).sum(-1)
        if method != "conjugate":
            mean = before.memory.get("mean_prediction", torch.full((5,), 0.2, dtype=torch.float64))
            weights = adapted.settings.method.weights(p.detach(), mean)
            values = values * weights * (len(x) / int((weights > 0).sum()))
        wanted = torch.autograd.grad(values.mean(), [model.get_parameter(name) for name in names])
        for name, value in zip(names, wanted, strict=True):
            close(found.tensors[name], value)


@pytest.mark.parametrize("shape", [(4, 3), (3, 3, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_through_batch_passes_gradcheck(shape, weight):
    """Numerical differences see that the statistics depend on the input; the function must tell."""
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    old_mean, old_variance, source_mean, source_variance = torch.rand(4, 3).double() + 0.2
    shift, axes = 0.6, [axis for axis in range(len(shape)) if axis != 1]

    def normalised(x: Tensor) -> Tensor:
        with torch.no_grad():
            variance, mean = torch.var_mean(x, axes, correction=0)
            stream_mean = old_mean + weight * (mean - old_mean)
            apart = (mean - old_mean).square()
            stream = torch.lerp(old_variance, variance, weight) + weight * (1 - weight) * apart
            used = torch.lerp(source_mean, stream_mean, shift)
            variance = torch.lerp(source_variance, stream, shift)
        share = torch.tensor(weight * shift, dtype=torch.float64)
        values = x.numel() // CHANNELS
        x = ThroughBatch.apply(x, stream_mean, used, variance, share, EPS, values, None)
        return F.batch_norm(x, used, variance, training=False, eps=EPS)

    assert torch.autograd.gradcheck(normalised, (x,))


@pytest.mark.parametrize("shape", [(6, 3), (1, 3), (1, 3, 1, 1), (1, 3, 2, 2), (4, 3, 2, 3, 2)])
def test_moments_are_torchs(shape):
    x = torch.randn(shape, dtype=torch.float64) * 3 + 100
    axes = [axis for axis in range(len(shape)) if axis != 1]
    variance, mean = torch.var_mean(x, axes, correction=0)
    for memory in (x, x.to(memory_format=torch.channels_last) if x.ndim == 4 else x):
        ours = moments(memory, torch.float64)
        close(ours[0], mean)
        close(ours[1], variance)
    assert moments(x.float(), torch.float64)[0].dtype == torch.float64
    assert moments(x.half(), torch.float32)[1].dtype == torch.float32


# --- networks of other kinds ---------------------------------------------------------------------


class Twice(nn.Module):
    """One layer that runs twice, one that never runs, and one without statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.idle = nn.BatchNorm1d(4), nn.BatchNorm1d(7)
        self.own = nn.BatchNorm1d(4, track_running_stats=False)
        self.head = nn.Linear(4, 3)
        self.register_buffer("classes", torch.arange(3))  # a name that the adapter uses inside

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.own(torch.tanh(self.norm(self.norm(x)))))


def test_a_layer_that_runs_twice_is_suited_to_its_first_input():
    model = Twice().double()
    x = torch.randn(64, 4, dtype=torch.float64) * 3 + 4
    adapted = still(model)
    logits = adapted(x)
    variance, mean = torch.var_mean(x, 0, correction=0)
    close(adapted.state.statistics["norm.running_mean"], mean)
    h = x
    for _ in range(2):
        h = (h - mean) / (variance + EPS).sqrt()
    close(logits, model.head(model.own(torch.tanh(h))).detach())


def test_a_layer_that_never_runs_keeps_its_statistics_and_is_saved(same_state):
    model = Twice().double()
    adapted, again = still(model, correct_output=True), still(model, correct_output=True)
    for seed in range(2):
        adapted(torch.randn(20, 4, dtype=torch.float64) + seed)
    assert torch.equal(adapted.state.statistics["idle.running_var"], model.idle.running_var)
    again.load_state_dict(adapted.state_dict())
    same_state(adapted, again)


def test_what_is_known_of_the_stream_never_overwrites_buffers_of_the_model():
    model = Twice().double()
    adapted = still(model, correct_output=True)
    adapted(torch.randn(20, 4, dtype=torch.float64))
    assert torch.equal(adapted.adapted_model().classes, model.classes)


def test_without_running_statistics_every_choice_is_the_batchs():
    model = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 3)).double()
    x = torch.randn(20, 4, dtype=torch.float64)
    assert torch.equal(still(model)(x), still(model, "batch")(x))


class Overflow(nn.Module):
    """Infinite where an input is large."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 1e6, torch.inf, x)


@pytest.mark.parametrize("first", [True, False])
def test_activations_that_are_not_finite_leave_all_as_it_was(first, same_state):
    model = nn.Sequential(Overflow(), *network())
    fine, bad = images(1) + 0.3, images(1, seed=2)
    bad[0, 0, 0, 0] = 1e7
    spoilt, plain = still(model), still(model)
    if not first:
        spoilt(fine), plain(fine)
    before = plain.state
    spoilt(bad)
    for name, value in spoilt.state.statistics.items():
        assert torch.equal(value, before.statistics[name]), name
    for name, value in before.seen.items():
        assert torch.equal(value, spoilt.state.seen[name]), name
    for seed in range(3):
        close(spoilt(images(2, seed=seed)), plain(images(2, seed=seed)))
    for name, value in plain.state.seen.items():
        assert torch.equal(value, spoilt.state.seen[name]), name


def test_channels_last_memory_gives_the_same():
    model, batches = network(), STREAMS["small batches"]
    one, other = (
        fenchel.adapt(model, trained_with="poly", statistics="auto", protect=False, channels_last=c)
        for c in (False, True)
    )
    for x in batches:
        close(one(x), other(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_gives_finite_predictions_near_those_of_float32(dtype, autocast):
    batches = [images(size, seed=size).float() + 0.5 for size in (20, 1, 20)]
    options = {"trained_with": "cross-entropy", "learning_rate": 1e-3}
    exact = fenchel.adapt(network(dtype=torch.float32), **options)
    if autocast:
        rough = fenchel.adapt(network(dtype=torch.float32), **options)
    else:
        rough = fenchel.adapt(network(dtype=dtype), **options)
    for x in batches:
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            output = rough(x if autocast else x.to(dtype))
        torch.testing.assert_close(output.float(), exact(x), rtol=0.1, atol=0.1)
    assert rough.health().skipped_non_finite == 0
    assert all(value.isfinite().all() for value in rough.state.statistics.values())


# --- settings ------------------------------------------------------------------------------------


def test_the_adapted_model_predicts_alone_as_the_frozen_adapter_does():
    adapted = fenchel.adapt(network(), trained_with="poly", correct_output=False)
    for x in STREAMS["large batches"]:
        adapted(x)
    adapted.freeze()
    before = adapted.state
    x = images(5, seed=8)
    close(adapted.adapted_model().eval()(x).detach(), adapted(x))
    assert adapted.state is before


def test_a_second_step_uses_the_statistics_that_the_first_decided():
    model, x = network(), images(20) + 0.7
    one, two = (
        fenchel.adapt(
            model, trained_with="poly", method="conjugate", statistics="auto", steps=steps
        )
        for steps in (1, 2)
    )
    one(x), two(x)
    assert (one.health().updates, two.health().updates) == (1, 2)
    for name, value in one.state.statistics.items():
        assert torch.equal(value, two.state.statistics[name])
    assert float(two.state.seen[suited.SAMPLES]) == 20


def test_batches_without_an_update_enter_the_statistics_too():
    model, batches = network(), STREAMS["small batches"]
    adapted = still(model, update_every=2)
    for x, (logits, _, _) in zip(batches, restated(model, batches), strict=True):
        close(adapted(x), logits.detach())
    assert adapted.health().updates == 3


def test_the_prediction_before_the_update_is_that_of_the_source_parameters():
    model, x = network(), images(20) + 0.7
    ((logits, _, _),) = restated(model, [x])
    adapted = fenchel.adapt(
        model, trained_with="poly", method="conjugate", statistics="auto", predict="before"
    )
    close(adapted(x), logits.detach())
    assert adapted.health().updates == 1


def test_views_are_normalised_by_what_is_known_and_only_the_batch_enters():
    model, x = network(), torch.rand(6, 3, 4, 4, dtype=torch.float64)
    adapted = fenchel.adapt(
        model,
        trained_with="cross-entropy",
        method="memo",
        statistics="auto",
        input_range=(0, 1),
        learning_rate=0.0,
    )
    ((logits, _, samples),) = restated(model, [x])
    close(adapted(x), logits.detach())
    assert float(adapted.state.seen[suited.SAMPLES]) == samples == 6


def test_a_compiler_is_refused_with_what_to_do():
    with pytest.raises(
        ValueError, match=r"compile=True needs statistics 'batch', 'source'.*'auto'"
    ):
        fenchel.adapt(network(), trained_with="poly", statistics="auto", compile=True)
