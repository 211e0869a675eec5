"""`fenchel.adapt`: defaults, named methods and their options, and errors in the user's terms."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

import fenchel
from fenchel.adapters import METHODS, SGD, Adam, AdaptationWarning, TorchOptimizer
from fenchel.methods import PAPER_METHODS
from fenchel.objectives import Objective


def network(norm=nn.BatchNorm1d):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), norm(8), nn.ReLU(), nn.Linear(8, 3))


def batch():
    return torch.rand(20, 5, generator=torch.Generator().manual_seed(1))


def test_the_documented_call_has_the_documented_defaults():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(fenchel.adapt).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    expected = {
        "optimizer": "sgd",
        "learning_rate": None,
        "temperature": None,
        "steps": 1,
        "predict": "after",
        "statistics": "batch",
        "episodic": False,
    }
    assert expected.items() <= defaults.items()
    adapted = fenchel.adapt(
        network(),
        trained_with=fenchel.PolyLoss(epsilon=6.0),
        method="conjugate",
        **expected,
    )
    assert adapted.settings == fenchel.adapt(network(), trained_with="poly:epsilon=6.0").settings
    assert adapted.settings.objective == fenchel.Conjugate(fenchel.PolyLoss(epsilon=6.0))
    assert adapted.settings.optimizer == SGD(learning_rate=1e-3, momentum=0.9, nesterov=True)
    assert adapted(batch()).shape == (20, 3)


def test_adam_has_the_documented_betas():
    adapted = fenchel.adapt(network(), method="entropy", optimizer="adam", learning_rate=0.01)
    assert adapted.settings.optimizer == Adam(learning_rate=0.01, betas=(0.9, 0.999))


CROSS = fenchel.CrossEntropy()


@pytest.mark.parametrize(
    ("method", "options", "objective"),
    [
        ("source", {}, None),
        ("bn", {}, None),
        ("entropy", {}, fenchel.Entropy(temperature=2.0)),
        (
            "hard",
            {"threshold": 0.5},
            fenchel.HardPseudoLabel(CROSS, threshold=0.5, temperature=2.0),
        ),
        ("soft", {}, fenchel.SoftPseudoLabel(CROSS, temperature=2.0)),
        ("robust", {"q": 0.5}, fenchel.RobustPseudoLabel(q=0.5, temperature=2.0)),
        (
            "memo",
            {"views": 2, "input_range": (0, 1)},
            fenchel.MarginalEntropy(views=2, input_range=(0, 1), temperature=2.0),
        ),
        ("conjugate", {}, fenchel.Conjugate(CROSS, temperature=2.0)),
    ],
)
def test_a_method_names_its_objective(method, options, objective):
    adapted = fenchel.adapt(
        network(), trained_with=CROSS, method=method, temperature=2.0, **options
    )
    assert adapted.settings.objective == objective


def test_the_papers_methods_are_listed():
    expected = {"source", "bn", "entropy", "hard", "soft", "robust", "memo", "conjugate"}
    assert expected == set(PAPER_METHODS) <= set(METHODS)
    assert all(kind.summary() for kind in METHODS.everything().values())


def test_one_s_own_objective_is_used_at_the_temperature_asked_for():
    own = fenchel.ScaledEntropy(alpha=0.5, temperature=3.0)
    assert fenchel.adapt(network(), objective=own).settings.objective == own
    warmer = fenchel.adapt(network(), objective=own, temperature=2.0).settings.objective
    assert warmer == fenchel.ScaledEntropy(alpha=0.5, temperature=2.0)


def test_memo_takes_the_range_of_a_model_that_knows_it():
    class Preprocessing:
        input_range = (0.0, 255.0)

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    model.preprocessing = Preprocessing()
    assert fenchel.adapt(model, method="memo").settings.objective.input_range == (0.0, 255.0)
    given = fenchel.adapt(model, method="memo", input_range=(0, 1)).settings.objective
    assert given.input_range == (0, 1)


def test_memo_without_a_range_says_what_to_pass():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    with pytest.raises(ValueError, match=r"Pass input_range=\(0, 1\)"):
        fenchel.adapt(model, method="memo")


def test_a_class_of_torch_optim_gets_the_learning_rate():
    adapted = fenchel.adapt(
        network(), method="entropy", optimizer=torch.optim.RMSprop, learning_rate=0.25
    )
    optimizer = adapted.settings.optimizer
    assert isinstance(optimizer, TorchOptimizer)
    made = optimizer.factory([nn.Parameter(torch.zeros(1))])
    assert isinstance(made, torch.optim.RMSprop)
    assert made.defaults["lr"] == 0.25


def test_an_optimizer_object_is_taken_as_it_is():
    own = SGD(learning_rate=0.5, momentum=0.0, nesterov=False)
    assert fenchel.adapt(network(), method="entropy", optimizer=own).settings.optimizer is own


def test_bn_on_a_model_without_batch_norm_warns():
    model = network(norm=nn.LayerNorm)
    with pytest.warns(AdaptationWarning, match="no batch-normalisation layers"):
        adapted = fenchel.adapt(model, method="bn")
    x = batch()
    assert torch.equal(adapted(x), model(x))


def test_source_ignores_the_statistics_asked_for():
    assert fenchel.adapt(network(), method="source").settings.statistics == "source"


def absolute_error(h, y):
    return (h.softmax(-1) - y).abs().sum(-1)


class NotAnObjective:
    def __call__(self, logits):
        return logits.sum(-1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, r"method 'conjugate' is derived from the loss.*trained_with="),
        ({"method": "hard"}, ValueError, "Pass trained_with="),
        ({"method": "soft"}, ValueError, "Pass trained_with="),
        ({"method": "conjugat"}, ValueError, "Did you mean 'conjugate'"),
        ({"method": 3}, TypeError, "a name such as 'conjugate', or a fenchel.Method; got int"),
        ({"trained_with": "polly:epsilon=6"}, ValueError, "Did you mean 'poly'"),
        ({"trained_with": "poly:epsilom=6"}, ValueError, "Did you mean 'epsilon'"),
        ({"trained_with": absolute_error}, TypeError, r"trained_with=fenchel.derive\(your_loss\)"),
        ({"trained_with": 6}, TypeError, "a fenchel loss or its spec, or a loss of torch; got int"),
        ({"method": "bn", "q": 1}, ValueError, "option of method 'bn': 'q'"),
        ({"method": "hard", "trained_with": CROSS, "treshold": 1}, ValueError, "mean 'threshold'"),
        ({"method": "entropy", "temperature": 0.0}, ValueError, "temperature > 0"),
        ({"method": "entropy", "optimizer": "adma"}, ValueError, "Did you mean 'adam'"),
        (
            {"method": "entropy", "optimizer": 3},
            TypeError,
            "optimizer must be 'sgd', 'adam'.*got int",
        ),
        (
            {
                "method": "entropy",
                "optimizer": torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1),
            },
            TypeError,
            "optimizer must be.*got SGD.*optimizer=lambda parameters",
        ),
        ({"method": "entropy", "learning_rate": -1.0}, ValueError, "learning_rate >= 0; got -1.0"),
        ({"method": "entropy", "steps": 0}, ValueError, "steps must be .* got 0"),
        ({"method": "entropy", "steps": 1.5}, ValueError, "steps must be .* got 1.5"),
        ({"method": "entropy", "predict": "during"}, ValueError, "predict must be .*'during'"),
        ({"objective": fenchel.Entropy(), "method": "entropy"}, ValueError, "not both"),
        ({"objective": fenchel.Entropy(), "q": 1}, TypeError, "adapt does not know q"),
        ({"objective": NotAnObjective()}, TypeError, "must be a fenchel Objective; got NotAnObj"),
        (
            {"method": "robust", "trained_with": fenchel.BinaryCrossEntropy()},
            ValueError,
            "one class out of C",
        ),
    ],
    ids=lambda value: ",".join(value) or "nothing" if isinstance(value, dict) else "",
)
def test_a_mistake_is_named_with_what_to_do(arguments, error, message):
    with pytest.raises(error, match=message):
        fenchel.adapt(network(), **arguments)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_loss_whose_objective_is_constant_is_refused_in_every_mode(mode):
    constant = fenchel.ProbabilityLoss(phi=lambda z: 1 - z)
    with mode(), pytest.raises(ValueError, match=r"no gradient.*method='entropy'"):
        fenchel.adapt(network(), trained_with=constant)
    assert fenchel.adapt(network(), trained_with=constant, method="hard") is not None


def test_a_derived_loss_adapts_as_its_closed_form():
    def typed(h, y):
        return -(y * h.log_softmax(-1)).sum(-1)

    x = batch()
    derived = fenchel.adapt(network(), trained_with=fenchel.derive(typed), learning_rate=0.05)
    closed = fenchel.adapt(network(), trained_with=CROSS, learning_rate=0.05)
    for _ in range(3):
        torch.testing.assert_close(derived(x), closed(x), rtol=1e-4, atol=1e-5)


def test_third_party_objectives_need_only_a_value():
    class Spread(Objective):
        def value(self, h):
            return -h.var(-1)

    adapted = fenchel.adapt(network(), objective=Spread(), learning_rate=0.05)
    x = batch()
    first = adapted(x).var(-1).mean()
    for _ in range(10):
        last = adapted(x).var(-1).mean()
    assert last > first


def test_the_representation_tells_what_moves():
    text = repr(fenchel.adapt(network(), method="entropy"))
    assert "Entropy(" in text
    assert "moving=2 tensors" in text
    assert "mode=adapting" in text
