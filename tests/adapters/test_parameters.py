"""Which parameters move: by policy, by name, by pattern, by predicate."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fenchel


def moving(adapted):
    return list(adapted.state.parameters)


def test_normalization_layers_move_by_default(make_network, adapt):
    assert moving(adapt(make_network())) == ["1.weight", "1.bias", "4.weight", "4.bias"]


def test_all_parameters_move_on_request(make_network, make_stream, adapt):
    model = make_network()
    adapted = adapt(model, parameters="all")
    assert moving(adapted) == [name for name, _ in model.named_parameters()]
    adapted(make_stream(1)[0])
    # A bias in front of batch statistics cancels out: its gradient is zero but for rounding.
    for name, value in adapted.state.parameters.items():
        moved = not torch.allclose(value, model.get_parameter(name), rtol=0, atol=1e-7)
        assert moved != (name in ("0.bias", "3.bias")), name


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (["8.bias"], ["8.bias"]),
        ("8.bias", ["8.bias"]),
        ("*.weight", ["0.weight", "1.weight", "3.weight", "4.weight", "8.weight"]),
        (("8.*", "1.bias"), ["1.bias", "8.weight", "8.bias"]),
        ({"4.*"}, ["4.weight", "4.bias"]),
        (lambda name, value: value.ndim == 2, ["8.weight"]),
        (lambda name, value: name.startswith("3."), ["3.weight", "3.bias"]),
    ],
    ids=["name", "bare-name", "pattern", "patterns", "set", "by-value", "by-name"],
)
def test_parameters_are_chosen_in_the_model_s_order(
    make_network, make_stream, adapt, untouched, selection, expected
):
    model = make_network()
    with untouched(model):
        adapted = adapt(model, parameters=selection)
        adapted(make_stream(1)[0])
    assert moving(adapted) == expected
    assert any(
        not torch.equal(value, model.get_parameter(name))
        for name, value in adapted.state.parameters.items()
    )


def test_frozen_parameters_move_too(make_network, make_stream, adapt):
    model = make_network().requires_grad_(False)
    plain, frozen = adapt(make_network()), adapt(model)
    batch = make_stream(1)[0]
    assert torch.equal(frozen(batch), plain(batch))
    assert frozen.health().updates == 1


@pytest.mark.parametrize(
    ("selection", "nearest"),
    [
        (["8.wieght"], "8.weight"),
        ("normalisation", "normalization"),
        (["1.bais", "8.bias"], "1.bias"),
    ],
)
def test_a_name_nobody_knows_is_refused_with_the_nearest(make_network, adapt, selection, nearest):
    with pytest.raises(ValueError, match=f"Did you mean '{nearest}'"):
        adapt(make_network(), parameters=selection)


@pytest.mark.parametrize("selection", [3, [1, 2], 0.5], ids=repr)
def test_what_is_no_selection_is_refused(make_network, adapt, selection):
    with pytest.raises(TypeError, match="parameters must be a policy"):
        adapt(make_network(), parameters=selection)


@pytest.mark.parametrize("selection", [[], lambda name, value: False], ids=["none", "predicate"])
def test_an_empty_selection_is_refused(make_network, adapt, selection):
    with pytest.raises(ValueError, match="selection of parameters is empty"):
        adapt(make_network(), parameters=selection)


def test_a_model_without_normalization_says_what_to_do(make_stream):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    with pytest.raises(ValueError, match=r"no normalisation layers.*parameters='all'") as caught:
        fenchel.adapt(model, method="entropy")
    assert "['1.weight', '1.bias']" in str(caught.value)
    adapted = fenchel.adapt(model, method="entropy", parameters=["1.weight", "1.bias"])
    adapted(make_stream(1)[0])
    assert adapted.health().updates == 1


def test_normalization_without_learnable_parameters_says_what_to_do(make_network, adapt):
    model = make_network(norm=lambda channels: nn.BatchNorm2d(channels, affine=False))
    with pytest.raises(ValueError, match="no normalisation layers with learnable parameters"):
        adapt(model)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ValueError, match="no parameters"):
        fenchel.adapt(nn.Flatten(), method="entropy")


def test_parameters_that_cannot_reach_the_logits_are_refused(make_stream):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.LayerNorm(192), nn.LayerNorm(192)

        def forward(self, x):
            return self.used(x.flatten(1))

    batch = make_stream(1)[0]
    adapted = fenchel.adapt(Half(), method="entropy", parameters=["unused.*"])
    with pytest.raises(ValueError, match="depend on none of the moving parameters"):
        adapted(batch)
    both = fenchel.adapt(Half(), method="entropy", parameters="all")
    both(batch)
    assert torch.equal(both.state.parameters["unused.weight"], torch.ones(192))
    assert not torch.equal(both.state.parameters["used.weight"], torch.ones(192))
