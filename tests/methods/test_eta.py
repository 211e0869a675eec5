"""ETA against a plain loop, its gates, and where it is not defined."""

from __future__ import annotations

import contextlib

import plain_torch as plain
import pytest
import torch
from torch import nn

import fenchel
from fenchel.methods import Descent
from fenchel.methods.eta import Eta

# That of the squared loss has no minimum, and twenty batches need none.
pytestmark = pytest.mark.filterwarnings("ignore::fenchel.adapters.guards.UnboundedObjectiveWarning")


def adapted_eta(model: nn.Module, loss: str, method: str = "eta", **options: object):
    options = {"similarity": 0.9, "predict": "before", **options}
    return fenchel.adapt(
        model, trained_with=loss, method=method, optimizer="adam", learning_rate=0.01, **options
    )


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("loss", plain.TERMS)
def test_it_is_the_plain_loop(norm, loss, predict):
    batches = plain.stream()
    model = plain.network(norm)
    wanted, kept = plain.eta_loop(model, batches, plain.TERMS[loss], predict=predict)
    assert 0 < sum(kept) < 16 * len(batches), "the gates must keep some samples and drop others"
    adapted = adapted_eta(plain.network(norm), loss, predict=predict)
    plain.agree(adapted, [adapted(x) for x in batches], model, wanted)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_the_entropy_inside_is_the_published_form_for_any_loss(norm):
    batches, model = plain.stream(6), plain.network(norm)
    wanted, _ = plain.eta_loop(model, batches, plain.entropy)
    adapted = adapted_eta(plain.network(norm), "squared", objective="entropy")
    plain.agree(adapted, [adapted(x) for x in batches], model, wanted)


def test_without_gates_it_is_weighted_tent():
    batches = plain.stream(3)
    free = adapted_eta(plain.network("batch"), "cross-entropy", margin=1.0, similarity=1.0)
    seen = [free(x) for x in batches]
    assert free.health().updates == 3
    assert all(torch.isfinite(output).all() for output in seen)


@pytest.mark.parametrize("loss", plain.TERMS)
def test_weights_are_in_nats_of_softmax_entropy_whatever_the_loss(loss):
    method = fenchel.adapt(plain.network("batch"), trained_with=loss, method="eta").settings.method
    logits = 100 * torch.randn(50, 5, generator=torch.Generator().manual_seed(0)).double()
    weights = method.weights(logits, torch.zeros(5, dtype=torch.float64))
    assert weights.max() <= torch.exp(torch.tensor(0.4 * plain.MOST)) + 1e-12


@pytest.mark.parametrize("norm", ["batch", "layer", "group"])
def test_one_sample_and_constant_batches_do_no_harm(norm):
    adapted = fenchel.adapt(
        plain.network(norm), trained_with="cross-entropy", method="eta", margin=1.0, similarity=1.0
    )
    constant = torch.full((4, 3, 8, 8), 0.5, dtype=torch.float64)
    small = pytest.warns(fenchel.AdaptationWarning, match="a batch of 1")
    with small if norm == "batch" else contextlib.nullcontext():
        for x in (plain.stream(1)[0][:1], constant, torch.zeros_like(constant)):
            assert torch.isfinite(adapted(x)).all()
    assert adapted.health().skipped_non_finite == 0


def test_a_batch_without_a_reliable_sample_is_skipped_and_not_remembered():
    adapted = adapted_eta(plain.network("batch"), "cross-entropy", margin=1e-9)
    adapted(plain.stream(1)[0])
    assert adapted.health().skipped_none_kept == 1
    assert not adapted.state.memory["mean_prediction"].any()


def test_published_settings_apply_and_explicit_ones_win():
    model = plain.network("batch")
    made = fenchel.adapt(model, trained_with="poly", method="eta", settings="cifar10").settings
    assert made.optimizer == fenchel.Adam(learning_rate=1e-3)
    assert (made.method.similarity, made.predict) == (0.4, "before")
    own = fenchel.adapt(
        model,
        trained_with="poly",
        method="eta",
        settings="imagenet",
        similarity=0.3,
        learning_rate=0.1,
        predict="after",
    ).settings
    assert own.optimizer == fenchel.SGD(learning_rate=0.1)
    assert (own.method.similarity, own.predict) == (0.3, "after")
    with pytest.raises(ValueError, match=r"published settings of method 'eta': 'cifar'.*cifar10"):
        fenchel.adapt(model, trained_with="poly", method="eta", settings="cifar")
    with pytest.raises(ValueError, match="published settings of method 'bn'"):
        fenchel.adapt(model, method="bn", settings="cifar10")


@pytest.mark.parametrize("method", ["eta", "rdumb", "sar", "deyo", "roid", "eata"])
@pytest.mark.parametrize("loss", ["binary-cross-entropy", "exponential"])
def test_labels_of_another_kind_are_refused(method, loss):
    with pytest.raises(ValueError, match=r"entropy of a softmax over classes.*method='conjugate'"):
        fenchel.adapt(plain.network("batch"), trained_with=loss, method=method)


@pytest.mark.parametrize("method", ["eta", "sar"])
def test_one_score_is_refused_at_the_first_batch(method):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1))
    adapted = fenchel.adapt(model, trained_with="squared", method=method)
    with pytest.raises(ValueError, match=r"two classes or more; got logits of shape \(20, 1\)"):
        adapted(torch.randn(20, 4))
    assert adapted.health().batches == 0


def test_the_loss_must_be_known_unless_the_objective_needs_none():
    model = plain.network("batch")
    with pytest.raises(ValueError, match=r"Pass trained_with=.*objective='entropy'"):
        fenchel.adapt(model, method="eta")
    fenchel.adapt(model, method="eta", objective="entropy")
    with pytest.raises(ValueError, match="makes views"):
        fenchel.adapt(model, method="eta", objective="memo")
    with pytest.raises(ValueError, match="Did you mean 'entropy'"):
        fenchel.adapt(model, method="eta", objective="entrpy")
    with pytest.raises(TypeError, match="objective is a name"):
        fenchel.adapt(model, method="eta", objective=3)
    with pytest.raises(ValueError, match="not both"):
        fenchel.adapt(model, method="bn", objective=fenchel.Entropy())


def test_options_come_back_as_plain_values():
    loss = fenchel.PolyLoss(epsilon=2.0)
    for given in ("conjugate", "entropy", "hard:threshold=0.9"):
        made = Eta.made_for(loss, objective=given)
        assert made.settings()["objective"] == given
        assert Eta.made_for(loss, **made.settings()) == made
    assert Eta.made_for(loss, objective=fenchel.Entropy()).settings()["objective"] == "entropy"
    assert Eta.made_for(loss, objective="published").settings()["objective"] == "entropy"


def test_a_ready_method_learns_the_loss_from_adapt():
    made = fenchel.adapt(plain.network("batch"), trained_with="poly", method=Eta(margin=0.3))
    assert made.settings.method.term == fenchel.Conjugate(fenchel.PolyLoss())
    with pytest.raises(TypeError, match="brings its own options; got settings"):
        fenchel.adapt(plain.network("batch"), method=Eta(), settings="cifar10")
    with pytest.raises(ValueError, match="does not know the training loss"):
        _ = Eta().term


@pytest.mark.parametrize("method", ["eta", "sar", "deyo:drop=0.0", "roid:consistency=False"])
def test_a_temperature_is_that_of_objective_gates_and_weights(method):
    """The network with smaller scores at their temperature moves as the network itself does."""
    batches = plain.stream(4)
    small = plain.network("layer")
    with torch.no_grad():
        small[7].weight.div_(4)
        small[7].bias.div_(4)
    own, cooled = (
        fenchel.adapt(
            model, trained_with="cross-entropy", method=method, optimizer="adam", temperature=t
        )
        for model, t in ((plain.network("layer"), None), (small, 0.25))
    )
    assert cooled.settings.method.term.temperature == 0.25
    for x in batches:
        own(x), cooled(x)
    assert own.health().updates == cooled.health().updates > 0
    for name, value in own.state.parameters.items():
        torch.testing.assert_close(cooled.state.parameters[name], value, rtol=1e-6, atol=1e-8)


def test_a_flat_softmax_passes_no_gate_without_a_temperature():
    """Scores near 0 and 1, as the squared loss trains them, are unsure in nats whatever they say."""
    model = plain.network("layer")
    with torch.no_grad():
        model[7].weight.div_(4.5 * 8)
    for temperature, updates in ((None, 0), (0.02, 1)):
        adapted = fenchel.adapt(
            model, trained_with="squared", method="eta", temperature=temperature
        )
        adapted(plain.stream(1)[0])
        assert adapted.health().updates == updates


def test_an_objective_by_itself_needs_no_method():
    made = fenchel.adapt(plain.network("batch"), objective=fenchel.Entropy())
    assert isinstance(made.settings.method, Descent)
    with pytest.raises(TypeError, match="Pass a name as method='entropy'"):
        fenchel.adapt(plain.network("batch"), objective="entropy")
