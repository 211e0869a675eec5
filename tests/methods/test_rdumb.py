"""RDumb against a plain loop that forgets everything now and then."""

from __future__ import annotations

import copy

import plain_torch as plain
import pytest
import torch

import fenchel


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("every", [1, 7])
def test_it_is_the_plain_loop(norm, every, predict):
    batches, model = plain.stream(), plain.network(norm)
    source = copy.deepcopy(model).state_dict()

    def forget(number):
        if number % every or not number:
            return None
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(source[name])
        return torch.optim.Adam(plain.affine(model), lr=0.01)

    wanted, kept = plain.eta_loop(
        model, batches, plain.poly_conjugate, predict=predict, forget=forget
    )
    assert sum(kept) > 0
    adapted = fenchel.adapt(
        plain.network(norm),
        trained_with="poly:epsilon=2",
        method="rdumb",
        every=every,
        similarity=0.9,
        optimizer="adam",
        learning_rate=0.01,
        predict=predict,
    )
    plain.agree(adapted, [adapted(x) for x in batches], model, wanted)


def test_it_is_eta_until_the_reset_and_a_fresh_eta_after_it():
    batches = plain.stream(6)
    settings = {"trained_with": "cross-entropy", "similarity": 0.9, "learning_rate": 0.01}
    rdumb = fenchel.adapt(plain.network("batch"), method="rdumb:every=3", steps=1, **settings)
    eta = fenchel.adapt(plain.network("batch"), method="eta", **settings)
    for x in batches[:3]:
        assert torch.equal(rdumb(x), eta(x))
    eta.reset()
    for x in batches[3:]:
        assert torch.equal(rdumb(x), eta(x))


def test_a_reset_forgets_mixed_statistics_and_moments_of_any_optimizer():
    batches = plain.stream(4)
    for optimizer in ("adam", torch.optim.NAdam):
        rdumb, eta = (
            fenchel.adapt(
                plain.network("batch"),
                trained_with="cross-entropy",
                method=method,
                similarity=0.9,
                optimizer=optimizer,
                learning_rate=0.01,
            )
            for method in ("rdumb:every=2", "eta")
        )
        outputs = [rdumb(x) for x in batches]
        eta(batches[0]), eta(batches[1])
        eta.reset()
        assert torch.equal(outputs[2], eta(batches[2]))
        assert torch.equal(outputs[3], eta(batches[3]))
    mixed = fenchel.adapt(
        plain.network("batch"), trained_with="poly", method="rdumb:every=1", statistics=0.5
    )
    mixed(batches[0]), mixed(batches[0])
    running = plain.network("batch")[1].running_mean
    assert torch.equal(mixed.state.statistics["1.running_mean"], running)


@pytest.mark.parametrize("every", [0, 1.5, True])
def test_a_number_of_updates_is_a_whole_number(every):
    with pytest.raises(ValueError, match="whole number of updates"):
        fenchel.adapt(plain.network("batch"), trained_with="poly", method="rdumb", every=every)
