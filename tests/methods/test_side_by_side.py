"""Several learning rates at once, against runs of each by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import fenchel
from fenchel.adapters import SGD, Adam
from fenchel.methods.side_by_side import CHOSEN, SEEN, SideBySide

FACTORS = (1.0, 0.25, 4.0)


def network() -> nn.Module:
    torch.manual_seed(1)
    layers = (nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    return nn.Sequential(*layers).double().eval()


def batches(count: int = 6, size: int = 48) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [2 * torch.randn(size, 6, generator=generator).double() + 1 for _ in range(count)]


def parameters_of(adapted: fenchel.Adapter, k: int) -> dict[str, torch.Tensor]:
    prefix = f"{k}.parameters."
    memory = adapted.state.memory
    return {name.removeprefix(prefix): v for name, v in memory.items() if name.startswith(prefix)}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("predict", ["before", "after"])
def test_every_rate_is_what_it_is_by_itself(optimizer: str, predict: str) -> None:
    arguments: Any = {"trained_with": "poly:epsilon=2", "method": "conjugate", "predict": predict}
    together = fenchel.adapt(
        network(), optimizer=optimizer, learning_rate="auto", protect=False, **arguments
    )
    kinds = {"sgd": SGD, "adam": Adam}
    alone = [
        fenchel.adapt(
            network(), optimizer=kinds[optimizer](learning_rate=1e-3 * factor), **arguments
        )
        for factor in FACTORS
    ]
    for x in batches():
        before = int(together.state.memory[CHOSEN]) if together.state.memory else 0
        shown = together(x)
        each = [single(x) for single in alone]
        answers = before if predict == "before" else int(together.state.memory[CHOSEN])
        assert torch.allclose(shown, each[answers], atol=1e-10)
    for k, single in enumerate(alone):
        for name, value in parameters_of(together, k).items():
            assert torch.allclose(value, single.state.parameters[name], atol=1e-10)


def entropy_of_mean(p: torch.Tensor) -> float:
    mean: list[float] = p.mean(0).tolist()
    return -sum(q * math.log(q) for q in mean)


def test_the_rate_whose_predictions_are_spread_most_answers() -> None:
    """Oracle: each rate by itself, its predictions before they are learned from, their mean's entropy."""
    arguments: Any = {"trained_with": "cross-entropy", "method": "conjugate", "predict": "before"}
    together = fenchel.adapt(network(), learning_rate="auto", protect=False, **arguments)
    alone = [
        fenchel.adapt(network(), learning_rate=1e-3 * f, protect=False, **arguments)
        for f in FACTORS
    ]
    shown: list[list[torch.Tensor]] = [[] for _ in FACTORS]
    for x in batches(8):
        together(x)
        for single, mine in zip(alone, shown, strict=True):
            mine.append(single(x).softmax(-1))
        spread = [entropy_of_mean(torch.cat(mine)) for mine in shown]
        assert spread[int(together.state.memory[CHOSEN])] >= max(spread) - 1e-9
    chosen = int(together.state.memory[CHOSEN])
    for name, value in together.state.parameters.items():
        assert torch.equal(value, parameters_of(together, chosen)[name])


def test_a_rate_that_gathers_predictions_in_one_class_is_left() -> None:
    adapted = fenchel.adapt(
        network(),
        trained_with="cross-entropy",
        method="conjugate",
        learning_rate="auto",
        protect=False,
    )
    for x in batches(4):
        adapted(x)
    gathered = torch.full_like(adapted.state.memory[SEEN], 25.0)
    chosen = int(adapted.state.memory[CHOSEN])
    gathered[chosen] = torch.tensor([97.0, 1.0, 1.0, 1.0])
    adapted.state = replace(adapted.state, memory={**adapted.state.memory, SEEN: gathered})
    adapted(batches(1)[0])
    assert int(adapted.state.memory[CHOSEN]) != chosen


def test_what_the_protection_draws_back_is_drawn_back_for_all() -> None:
    adapted = fenchel.adapt(
        network(), trained_with="cross-entropy", method="conjugate", learning_rate="auto"
    )
    first, second = batches(2)
    adapted(first)
    source = {name: value.clone() for name, value in adapted.step.source.items()}
    adapted.state = replace(adapted.state, parameters=source)
    adapted(second)
    fresh = fenchel.adapt(network(), trained_with="cross-entropy", method="conjugate")
    fresh(second)
    for name, value in parameters_of(adapted, 0).items():
        assert torch.allclose(value, fresh.state.parameters[name], atol=1e-3)


def test_it_is_saved_and_continued_bit_for_bit() -> None:
    one, two = (
        fenchel.adapt(network(), trained_with="cross-entropy", learning_rate="auto") for _ in "ab"
    )
    *early, late = batches(4)
    for x in early:
        one(x)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(late), two(late))


def test_a_method_that_moves_nothing_has_no_rate_to_choose() -> None:
    with pytest.raises(ValueError, match="moves nothing"):
        fenchel.adapt(network(), trained_with="cross-entropy", method="bn", learning_rate="auto")


def test_its_cost_is_told() -> None:
    adapted = fenchel.adapt(
        network(), trained_with="cross-entropy", method="eta", learning_rate="auto"
    )
    assert isinstance(adapted.settings.method, SideBySide)
    assert adapted.settings.method.cost is not None
    assert adapted.settings.method.cost.forward.startswith("3 x")
