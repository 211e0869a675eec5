"""What must not spoil an adapter: non-finite values, odd batches, models that cannot be adapted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import nn

import fenchel
from fenchel.adapters import AdaptationWarning
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS
from fenchel.objectives import Objective

FURTHER_METHODS = (*FIELD_METHODS, "protected")

EVERY_METHOD = [
    *product(STANDARD_METHODS, ["batch", "source", 0.3]),
    *((method, None) for method in FURTHER_METHODS),  # under the statistics that it was made for
]


@dataclass(frozen=True)
class Exploding(Objective):
    """Finite until told otherwise, in value or only in gradient."""

    how: str = "loss"

    def value(self, h):
        mean = h.mean(-1)
        if self.how == "loss":
            return mean * float("inf")
        # The square root of zero is finite; its slope is not.
        return (mean - mean.detach()).abs().sqrt()


@pytest.mark.parametrize("how", ["loss", "gradient"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", torch.optim.AdamW])
def test_a_non_finite_loss_or_gradient_is_skipped(make_network, make_stream, how, optimizer):
    model = make_network()
    adapted = fenchel.adapt(model, objective=Exploding(how=how), optimizer=optimizer)
    for batch in make_stream(2):
        assert adapted(batch).isfinite().all()
    assert adapted.health().skipped_non_finite == 2
    assert adapted.health().updates == 0
    for name, value in adapted.state.parameters.items():
        assert torch.equal(value, model.get_parameter(name))


def test_an_update_that_overflows_is_skipped(make_network, make_stream, adapt):
    steep = fenchel.ScaledEntropy(alpha=1e6)
    adapted = fenchel.adapt(make_network(), objective=steep, learning_rate=1e38)
    output = adapted(make_stream(1)[0])
    assert adapted.health().skipped_non_finite == 1
    assert all(value.isfinite().all() for value in adapted.state.parameters.values())
    assert output.shape == (20, 4)


def test_a_batch_with_no_confident_sample_takes_no_step(make_network, make_stream, adapt):
    batches = make_stream(2)
    adapted = adapt(make_network(), "hard", threshold=0.9999, optimizer="adam")
    before = adapted.state
    for batch in batches:
        adapted(batch)
    health = adapted.health()
    assert (health.updates, health.skipped_non_finite, health.skipped_none_kept) == (0, 0, 2)
    for group in ("parameters", "moments"):
        for name, tensor in getattr(adapted.state, group).items():
            assert torch.equal(tensor, getattr(before, group)[name]), name


def test_health_tells_the_whole_story(make_network, make_stream, adapt):
    batches = make_stream(3)
    adapted = adapt(make_network(), steps=2)
    assert adapted.health().batches == 0
    adapted(batches[0])
    adapted(torch.full_like(batches[1], float("nan")))
    adapted.freeze()
    adapted(batches[2])
    adapted.resume()
    adapted.reset()
    adapted(batches[2])
    health = adapted.health()
    assert health == fenchel.adapters.Health(
        batches=3,
        samples=60,
        updates=4,
        skipped_non_finite=2,
        skipped_none_kept=0,
        left_out=20,
        resets=1,
        mode="adapting",
    )
    assert health.skips == 2


def test_small_batches_warn_once_and_say_what_to_do(make_network, make_stream, adapt):
    adapted = adapt(make_network())
    batch = make_stream(1)[0]
    adapted(batch[:16])
    with pytest.warns(AdaptationWarning, match=r"batch of 15 .*statistics='auto'.*statistics=0.1"):
        adapted(batch[:15])
    adapted(batch[:3])  # warnings are errors here: a second one would fail
    assert adapted.health().updates == 3


@pytest.mark.parametrize("statistics", ["source", 0.1])
def test_small_batches_are_fine_without_batch_statistics(
    make_network, make_stream, adapt, statistics
):
    adapted = adapt(make_network(), statistics=statistics)
    assert adapted(make_stream(1)[0][:1]).isfinite().all()
    assert adapted.health().updates == 1


def test_small_batches_are_fine_without_batch_norm(make_network, make_stream, adapt):
    adapted = adapt(make_network(norm=lambda channels: nn.GroupNorm(2, channels)))
    assert adapted(make_stream(1)[0][:2]).isfinite().all()


def test_a_last_small_batch_is_predicted(make_network, make_stream, adapt):
    adapted = adapt(make_network())
    images = torch.cat(make_stream(3))[:43]
    with pytest.warns(AdaptationWarning, match="batch of 3 "):
        outputs = torch.cat([adapted(batch) for batch in images.split(20)])
    assert outputs.shape == (43, 4)
    assert outputs.isfinite().all()
    assert adapted.health().samples == 43


@pytest.mark.filterwarnings("ignore::fenchel.AdaptationWarning")
@pytest.mark.parametrize("method", [*STANDARD_METHODS, *FURTHER_METHODS])
def test_a_batch_of_one_image_is_predicted(make_network, make_stream, adapt, method):
    adapted = adapt(make_network(), method)
    assert adapted(make_stream(1)[0][:1]).isfinite().all()


@pytest.mark.filterwarnings("ignore::fenchel.AdaptationWarning")
def test_a_batch_of_one_vector_is_refused_with_what_to_do():
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    adapted = fenchel.adapt(model, method="entropy")
    before = adapted.state
    with pytest.raises(ValueError, match=r"more than one value per channel.*statistics='auto'"):
        adapted(torch.rand(1, 3))
    assert adapted.state is before
    assert fenchel.adapt(model, method="entropy", statistics="source")(torch.rand(1, 3)).shape == (
        1,
        4,
    )
    assert fenchel.adapt(model, method="entropy", statistics=0.1)(torch.rand(1, 3)).shape == (1, 4)


@pytest.mark.parametrize(("method", "statistics"), EVERY_METHOD)
def test_a_constant_batch_is_predicted_and_leaves_a_finite_state(
    make_network, make_stream, adapt, method, statistics
):
    adapted = adapt(make_network(), method, statistics=statistics)
    assert adapted(torch.full((20, 3, 8, 8), 0.5)).isfinite().all()
    assert adapted(torch.zeros(20, 3, 8, 8)).isfinite().all()
    for tensors in (adapted.state.parameters, adapted.state.statistics, adapted.state.moments):
        assert all(value.isfinite().all() for value in tensors.values())
    assert adapted(make_stream(1)[0]).isfinite().all()


@pytest.mark.parametrize(("method", "statistics"), EVERY_METHOD)
def test_an_empty_batch_gives_an_empty_prediction(make_network, adapt, method, statistics):
    adapted = adapt(make_network(), method, statistics=statistics)
    before = adapted.state
    assert adapted(torch.empty(0, 3, 8, 8)).shape == (0, 4)
    assert adapted.state is before


def test_scripted_and_traced_models_are_refused(make_network, make_stream, adapt):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of scripting
        models = [
            torch.jit.script(make_network()),
            torch.jit.trace(make_network().eval(), make_stream(1)[0]),
            nn.Sequential(torch.jit.script(make_network())),
        ]
    for model in models:
        with pytest.raises(TypeError, match="scripted model no longer has"):
            adapt(model)


def test_data_parallel_is_refused_with_what_to_pass(make_network, adapt):
    with pytest.raises(TypeError, match=r"got DataParallel. Pass model.module"):
        adapt(nn.DataParallel(make_network()))


def test_what_is_no_module_is_refused(adapt):
    with pytest.raises(TypeError, match=r"wraps a torch.nn.Module; got function"):
        adapt(lambda x: x)


def test_an_adapter_is_not_adapted_again(make_network, adapt):
    with pytest.raises(TypeError, match=r"adapted already.*Pass adapter.model"):
        adapt(adapt(make_network()))


def test_lazy_layers_must_be_run_once_before(make_network, make_stream, adapt):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy modules are announced as experimental
        model = nn.Sequential(nn.LazyBatchNorm2d(), *make_network())
    with pytest.raises(ValueError, match="Run it once on a batch"):
        adapt(model)
    model(make_stream(1)[0])
    adapt(model)(make_stream(1)[0])


def test_a_model_that_cannot_be_copied_says_so(make_network, adapt):
    model = make_network()
    model.lock = open(__file__)  # noqa: SIM115
    try:
        with pytest.raises(TypeError, match=r"cannot be copied.*open files"):
            adapt(model)
    finally:
        model.lock.close()
