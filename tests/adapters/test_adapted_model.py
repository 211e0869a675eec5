"""The adapted model predicts alone: its statistics are those of the stream."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters.seen import HORIZON, stream_statistics, with_batch


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)]
    return nn.Sequential(*layers).eval()


def stream(batches: int = 6, size: int = 20) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [2 * torch.randn(size, 2, 6, 6, generator=generator) + 1 for _ in range(batches)]


def statistics_of(model: nn.Module) -> tuple[Tensor, Tensor]:
    layer = model.get_submodule("1")
    assert isinstance(layer, nn.BatchNorm2d)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean, layer.running_var


@pytest.mark.parametrize(("statistics", "weight"), [("batch", 1.0), ("mix:0.25", 0.25)])
def test_it_has_the_statistics_of_all_samples_weighted_as_they_were_used(
    statistics: str, weight: float
) -> None:
    model = network()
    adapted = fenchel.adapt(model, method="bn", statistics=statistics)
    batches = [*stream(), stream(size=16)[0]]  # the last one counts less
    for x in batches:
        adapted(x)
    reached = model[0](torch.cat(batches)).movedim(1, 0).flatten(1)
    mean, variance = statistics_of(adapted.adapted_model())
    theirs = statistics_of(model)
    torch.testing.assert_close(mean, torch.lerp(theirs[0], reached.mean(1), weight))
    expected = torch.lerp(theirs[1], reached.var(1), weight)
    torch.testing.assert_close(variance, expected, rtol=0.02, atol=0)


def test_predicting_alone_gives_nearly_the_adapter_s_own_predictions() -> None:
    adapted = fenchel.adapt(network(), trained_with="poly", learning_rate=0.01)
    batches = stream(30, 50)
    for x in batches:
        output = adapted(x)
    alone = adapted.adapted_model()
    assert not alone.training
    agree = (alone(batches[-1]).argmax(-1) == output.argmax(-1)).float().mean()
    assert agree > 0.9
    source = (adapted.model(batches[-1]).argmax(-1) == output.argmax(-1)).float().mean()
    assert agree > source


def test_the_model_s_own_statistics_are_never_written() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    adapted = fenchel.adapt(model, trained_with="poly")
    for x in stream():
        adapted(x)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_they_are_saved_restored_and_forgotten_with_the_rest() -> None:
    first, second = (fenchel.adapt(network(), trained_with="poly") for _ in range(2))
    batches = stream()
    for x in batches[:3]:
        first(x)
    second.load_state_dict(first.state_dict())
    for x in batches[3:]:
        first(x)
        second(x)
    both = (statistics_of(each.adapted_model()) for each in (first, second))
    for one, other in zip(*both, strict=True):
        assert torch.equal(one, other)
    first.reset()
    assert first.state.seen == {}
    for one, other in zip(
        statistics_of(first.adapted_model()), statistics_of(network()), strict=True
    ):
        assert torch.equal(one, other)


def test_states_saved_before_there_were_any_can_still_be_loaded() -> None:
    adapted = fenchel.adapt(network(), trained_with="poly")
    adapted(stream()[0])
    old = {k: v for k, v in adapted.state_dict().items() if not k.startswith("seen.")}
    adapted.load_state_dict(old)
    assert adapted.state.seen == {}
    adapted(stream()[0])


def test_a_batch_that_is_not_finite_does_not_count_and_old_ones_count_less() -> None:
    def noted(value: float) -> dict[str, Tensor]:
        return {"a.running_mean": torch.full((2,), value), "a.running_var": torch.ones(2)}

    seen = with_batch({}, noted(1.0), 100)
    assert torch.equal(stream_statistics(seen)["a.running_mean"], torch.ones(2))
    after = with_batch(seen, noted(float("inf")), 100)
    assert all(torch.equal(after[name], seen[name]) for name in seen)
    for _ in range(200):
        seen = with_batch(seen, noted(1.0), 100)
    assert int(seen["samples"]) == HORIZON
    latest = with_batch(seen, noted(2.0), 100)
    expected = 1 + 100 / (HORIZON + 100)
    torch.testing.assert_close(latest["a.running_mean"], torch.full((2,), expected))
