"""ROID against a plain loop; batches in which nothing differs; the corrected prior."""

from __future__ import annotations

import contextlib
import copy

import plain_torch as plain
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fenchel
from fenchel.methods.roid import with_batch_prior
from fenchel.objectives.likelihood_ratio import LikelihoodRatio
from fenchel.objectives.strong_view import strong_view


def likelihood_ratio(logits: Tensor) -> Tensor:
    p = logits.softmax(1).clamp(max=0.99)
    return -(p * torch.log(p / (1 - p) + 1e-5)).sum(1)


def in_unit_range(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


def corrected(logits: Tensor) -> Tensor:
    """Probabilities times the smoothed class frequencies of the batch, as logits."""
    samples, classes = logits.shape
    prior = logits.softmax(1).mean(0)
    smooth = max(1 / samples, 1 / classes) / prior.max()
    return logits + torch.log((prior + smooth) / (1 + smooth * classes))


def restated(
    model: nn.Module, batches: list[Tensor], term: plain.Term
) -> tuple[list[Tensor], list[int]]:
    parameters = plain.affine(plain.in_place(model))
    source = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    mean = torch.full((plain.CLASSES,), 1 / plain.CLASSES, dtype=torch.float64)
    outputs, kept = [], []
    for number, x in enumerate(batches):
        view = strong_view(x, torch.Generator().manual_seed(number))
        logits, other = model(x), model(view)
        outputs.append(corrected(logits.detach()))
        with torch.no_grad():
            p = logits.softmax(1)
            different = in_unit_range(1 - F.cosine_similarity(mean[None], p, dim=1))
            sure = in_unit_range(-plain.entropy(logits))
            weights = torch.exp(different * sure * 3)
            weights[different < different.mean()] = 0
            mean = 0.9 * mean + 0.1 * p.mean(0)
        kept.append(int((weights > 0).sum()))
        symmetric = -0.5 * (logits.softmax(1) * other.log_softmax(1)).sum(1)
        symmetric = symmetric - 0.5 * (other.softmax(1) * logits.log_softmax(1)).sum(1)
        loss = (weights * (term(logits) + symmetric)).sum() / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for parameter, value in zip(parameters, source, strict=True):
                parameter.copy_(0.99 * parameter + 0.01 * value)
    return outputs, kept


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize(
    ("loss", "objective", "term"),
    [
        ("cross-entropy", "conjugate", likelihood_ratio),
        ("poly:epsilon=2", "conjugate", plain.poly_conjugate),
        ("poly:epsilon=2", "published", likelihood_ratio),
        ("poly:epsilon=2", "entropy", plain.entropy),
    ],
)
def test_it_is_the_plain_loop(norm, loss, objective, term):
    batches, model = plain.stream(), plain.network(norm)
    wanted, kept = restated(model, batches, term)
    assert 0 < sum(kept) < 16 * len(batches)
    adapted = fenchel.adapt(
        plain.network(norm),
        trained_with=loss,
        method="roid",
        objective=objective,
        input_range=(0, 1),
        optimizer="adam",
        learning_rate=0.01,
        predict="before",
    )
    plain.agree(adapted, [adapted(x) for x in batches], model, wanted)


def test_for_cross_entropy_the_objective_is_the_published_one():
    for loss in ("cross-entropy", "label-smoothing"):
        adapted = fenchel.adapt(
            plain.network("batch"), trained_with=loss, method="roid:consistency=False"
        )
        assert adapted.settings.method.term == LikelihoodRatio()
        assert adapted.settings.method.settings()["objective"] == "likelihood-ratio"


@pytest.mark.parametrize("norm", ["batch", "layer", "group"])
def test_one_sample_and_constant_batches_count_as_they_are(norm):
    """Public code scales by the extremes, 0 / 0 where nothing differs, and loses its parameters."""
    adapted = fenchel.adapt(
        plain.network(norm), trained_with="cross-entropy", method="roid", input_range=(0, 1)
    )
    constant = torch.full((4, 3, 8, 8), 0.5, dtype=torch.float64)
    small = pytest.warns(fenchel.AdaptationWarning, match="a batch of 1")
    with small if norm == "batch" else contextlib.nullcontext():
        for x in (plain.stream(1)[0][:1], constant, constant[:1]):
            assert torch.isfinite(adapted(x)).all()
    health = adapted.health()
    assert (health.updates, health.skipped_non_finite) == (3, 0)
    method = adapted.settings.method
    mean = torch.full((5,), 0.2, dtype=torch.float64)
    same = torch.randn(1, 5, dtype=torch.float64).expand(4, 5)
    assert torch.equal(method.weights(same, mean), torch.ones(4, dtype=torch.float64))


def test_the_prior_multiplies_probabilities():
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)) + torch.arange(5.0)
    p = logits.softmax(1)
    smooth = (1 / 5) / p.mean(0).max()
    prior = (p.mean(0) + smooth) / (1 + 5 * smooth)
    wanted = p * prior / (p * prior).sum(1, keepdim=True)
    torch.testing.assert_close(with_batch_prior(logits).softmax(1), wanted)
    assert not torch.equal(with_batch_prior(logits).argmax(1), logits.argmax(1))
    shifted = with_batch_prior(logits + 7)  # a product with the logits would depend on their origin
    torch.testing.assert_close(shifted.softmax(1), wanted)


def test_a_single_sample_keeps_its_prediction():
    logits = torch.randn(1, 5)
    assert torch.equal(with_batch_prior(logits).argsort(), logits.argsort())


def test_parts_can_be_switched_off():
    x = plain.stream(1)[0]
    model = plain.network("layer")
    bare = fenchel.adapt(
        model, trained_with="poly", method="roid:consistency=False,prior_correction=False"
    )
    source = copy.deepcopy(model).eval()
    bare.freeze()
    with torch.no_grad():
        torch.testing.assert_close(bare(x), source(x))
    with pytest.raises(ValueError, match=r"input_range=\(0, 1\)"):
        fenchel.adapt(model, trained_with="poly", method="roid")


def test_the_pull_alone_leads_back_to_the_source():
    x = plain.stream(1)[0]
    adapted = fenchel.adapt(
        plain.network("layer"),
        trained_with="poly",
        method="roid",
        input_range=(0, 1),
        momentum=0.0,
        learning_rate=0.5,
    )
    adapted(x)
    source = dict(plain.network("layer").named_parameters())
    for name, value in adapted.state.parameters.items():
        assert torch.equal(value, source[name])
