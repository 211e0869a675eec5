"""`fenchel.adapt`: defaults, named methods and their options, and errors in the user's terms."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import fenchel
from fenchel.adapters import METHODS, SGD, Adam, AdaptationWarning, TorchOptimizer
from fenchel.methods import STANDARD_METHODS
from fenchel.objectives import Objective


def network(norm=nn.BatchNorm1d):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), norm(8), nn.ReLU(), nn.Linear(8, 3))


def batch():
    return torch.rand(20, 5, generator=torch.Generator().manual_seed(1))


def test_the_documented_call_has_the_documented_defaults():
    expected = {
        "learning_rate": None,
        "temperature": None,
        "steps": 1,
        "parameters": "normalization",
        "episodic": False,
    }
    poly = fenchel.PolyLoss(epsilon=6.0)
    bare = {
        "method": "conjugate",
        "optimizer": "sgd",
        "statistics": "batch",
        "predict": "after",
        "protect": False,
    }
    safe = {
        "method": "protected",
        "optimizer": "adam",
        "statistics": "auto",
        "predict": "before",
        "protect": "auto",
        "correct_output": True,
    }
    for short, explicit in (
        ({"method": "conjugate"}, bare),
        ({"protect": False}, bare),
        ({}, safe),
    ):
        adapted = fenchel.adapt(network(), trained_with=poly, **expected, **explicit)
        shorter = fenchel.adapt(network(), trained_with="poly:epsilon=6.0", **short)
        assert adapted.settings == shorter.settings
        assert adapted.settings.objective == fenchel.Conjugate(poly)
        assert adapted(batch()).shape == (20, 3)
        assert adapted.settings.optimizer == (
            Adam(learning_rate=1e-2)
            if explicit is safe
            else SGD(learning_rate=1e-3, momentum=0.9, nesterov=True)
        )


def test_a_watch_alone_reports_on_the_bare_step():
    watched, bare = (
        fenchel.adapt(network(), trained_with=CROSS, protect=protect)
        for protect in ("watch", False)
    )
    assert torch.equal(watched(batch()), bare(batch()))
    assert watched.settings.method == bare.settings.method
    assert watched.settings.optimizer == bare.settings.optimizer
    assert watched.health().signals
    assert not bare.health().signals
    with pytest.raises(ValueError, match="protect must be 'auto', 'watch' or False; got 'on'"):
        fenchel.adapt(network(), trained_with=CROSS, protect="on")


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
    assert expected == set(STANDARD_METHODS) <= set(METHODS)
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
        ({}, ValueError, r"method 'protected' is derived from the loss.*trained_with="),
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


# --- an API without surprises ---------------------------------------------------------------------


def test_a_method_may_be_written_with_its_options():
    written = fenchel.adapt(network(), trained_with=CROSS, method="hard:threshold=0.9")
    assert written.settings.objective == fenchel.HardPseudoLabel(CROSS, threshold=0.9)
    by_keyword = fenchel.adapt(network(), trained_with=CROSS, method="hard", threshold=0.9)
    assert written.settings == by_keyword.settings
    with pytest.raises(TypeError, match="threshold is given twice"):
        fenchel.adapt(network(), trained_with=CROSS, method="hard:threshold=0.9", threshold=0.8)


def test_every_method_is_an_instance_of_method():
    for name in STANDARD_METHODS:
        options = {"input_range": (0, 1)} if name == "memo" else {}
        adapted = fenchel.adapt(network(), trained_with=CROSS, method=name, **options)
        assert isinstance(adapted.settings.method, fenchel.Method)
    own = fenchel.adapt(network(), objective=fenchel.Entropy())
    assert isinstance(own.settings.method, fenchel.Method)


@pytest.mark.parametrize(
    ("torch_loss", "ours"),
    [
        (nn.CrossEntropyLoss(), fenchel.CrossEntropy()),
        (nn.functional.cross_entropy, fenchel.CrossEntropy()),
        (nn.CrossEntropyLoss(label_smoothing=0.1), fenchel.LabelSmoothing(smoothing=0.1)),
        (nn.BCEWithLogitsLoss(), fenchel.BinaryCrossEntropy()),
    ],
    ids=["CrossEntropyLoss", "F.cross_entropy", "label-smoothing", "BCEWithLogitsLoss"],
)
def test_losses_of_torch_are_taken_as_they_are(torch_loss, ours):
    adapted = fenchel.adapt(network(), trained_with=torch_loss)
    assert adapted.settings.objective == fenchel.Conjugate(ours)


def test_class_weights_are_derived_and_adapt():
    weights = torch.tensor([1.0, 2.0, 3.0])
    loss = nn.CrossEntropyLoss(weight=weights)
    adapted = fenchel.adapt(network(), trained_with=loss, learning_rate=0.05)
    plain = fenchel.adapt(network(), trained_with=CROSS, learning_rate=0.05)
    assert adapted(batch()).isfinite().all()
    assert not torch.allclose(adapted(batch()), plain(batch()))


def test_a_hinge_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"MultiMarginLoss.*no gradient"):
        fenchel.adapt(network(), trained_with=nn.MultiMarginLoss())


def test_a_temperature_of_one_overrides_an_objectives_own():
    own = fenchel.Entropy(temperature=3.0)
    assert fenchel.adapt(network(), objective=own).settings.objective.temperature == 3.0
    overridden = fenchel.adapt(network(), objective=own, temperature=1.0)
    assert overridden.settings.objective.temperature == 1.0


@pytest.mark.parametrize(
    "optimizer",
    [SGD(learning_rate=0.5), lambda parameters: torch.optim.SGD(parameters, lr=0.1)],
    ids=["object", "factory"],
)
def test_a_learning_rate_beside_a_ready_optimizer_is_refused(optimizer):
    with pytest.raises(ValueError, match=r"brings its own learning rate; got learning_rate=0.1"):
        fenchel.adapt(network(), method="entropy", optimizer=optimizer, learning_rate=0.1)


def test_the_name_that_an_argument_has_elsewhere_gets_a_hint():
    with pytest.raises(TypeError, match=r"does not know lr=. Did you mean learning_rate="):
        fenchel.adapt(network(), method="entropy", lr=0.1)


class Returning(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.body, self.wrap = network(), wrap

    def forward(self, x):
        return self.wrap(self.body(x))


@pytest.mark.parametrize(
    ("wrap", "where"),
    [
        (lambda a: {"scores": a, "other": 1}, "scores"),
        (lambda a: (0, a), 1),
        (lambda a: [a, 0], -2),
        (lambda a: (a,), lambda output: output[0]),
    ],
    ids=["key", "position", "from-the-end", "callable"],
)
def test_logits_are_found_by_key_position_or_function(wrap, where):
    x = batch()
    plain = fenchel.adapt(network(), method="entropy", learning_rate=0.1)(x)
    output = fenchel.adapt(Returning(wrap), method="entropy", learning_rate=0.1, logits=where)(x)
    picked = output[where] if not callable(where) else where(output)
    assert torch.equal(picked, plain)


def test_a_key_that_is_not_there_is_named_with_those_that_are():
    adapted = fenchel.adapt(Returning(lambda a: {"out": a}), method="entropy", logits="scores")
    with pytest.raises(ValueError, match=r"logits='scores' must name a part.*\['out'\]"):
        adapted(batch())


def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))


def test_an_output_of_more_than_two_axes_needs_the_axis_of_its_classes():
    x = torch.rand(16, 3, 5, 5)
    adapted = fenchel.adapt(dense(), method="entropy")
    before = adapted.state
    with pytest.raises(ValueError, match=r"more than two axes.*\(16, 4, 5, 5\).*Pass dim=1"):
        adapted(x)
    assert adapted.state is before
    by_dim = fenchel.adapt(dense(), method="entropy", dim=1, learning_rate=0.1)
    by_hand = fenchel.adapt(
        dense(), method="entropy", logits=lambda out: out.movedim(1, -1), learning_rate=0.1
    )
    for _ in range(2):
        assert torch.equal(by_dim(x), by_hand(x))


def test_a_key_says_nothing_about_the_axis():
    class Segmenter(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = dense()

        def forward(self, x):
            return {"out": self.body(x)}

    x = torch.rand(16, 3, 5, 5)
    with pytest.raises(ValueError, match="Pass dim=1"):
        fenchel.adapt(Segmenter(), method="entropy", logits="out")(x)
    output = fenchel.adapt(Segmenter(), method="entropy", logits="out", dim=1)(x)
    expected = fenchel.adapt(dense(), method="entropy", dim=-3)(x)
    assert torch.equal(output["out"], expected)


@pytest.mark.parametrize("dim", [0, 4, -4, -5, 1.5])
def test_an_axis_that_cannot_hold_the_classes_is_refused(dim):
    with pytest.raises(ValueError, match="dim"):
        fenchel.adapt(dense(), method="entropy", dim=dim)(torch.rand(16, 3, 5, 5))


def test_a_squared_loss_on_scores_without_a_bound_warns():
    with pytest.warns(AdaptationWarning, match=r"has no minimum.*no bound.*optimizer='adam'"):
        fenchel.adapt(network(), trained_with="squared", method="conjugate")
    with pytest.warns(AdaptationWarning, match="has no minimum"):
        fenchel.adapt(network(), trained_with=nn.MSELoss(), protect="watch")
    fenchel.adapt(network(), trained_with=nn.MSELoss())  # bounded steps, which stay near the source
    bounded = nn.Sequential(*network(), nn.Tanh())
    fenchel.adapt(bounded, trained_with="squared", method="conjugate")  # warnings are errors here
    fenchel.adapt(network(), trained_with="squared", method="entropy")


def test_the_bases_are_at_the_top_and_packages_resolve_by_themselves():
    for name in ("Loss", "Objective", "Method", "Health", "SGD", "Adam", "Session", "online"):
        assert hasattr(fenchel, name)
        assert name in fenchel.__all__
    assert all(getattr(fenchel, name) is not None for name in fenchel.__all__)
    script = (
        "import sys, fenchel\n"
        "assert 'torch' not in sys.modules and 'fenchel.adapters' not in sys.modules\n"
        "assert fenchel.data.Stream and fenchel.bench and fenchel.models.build and fenchel.train\n"
        "assert 'data' in dir(fenchel)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="no attribute 'dta'"):
        _ = fenchel.dta
