"""SAR against a plain loop; its reset starts the average anew."""

from __future__ import annotations

import contextlib
import copy
import itertools

import plain_torch as plain
import pytest
import torch
from torch import Tensor, nn

import fenchel

# That of the squared loss has no minimum, and twenty batches need none.
pytestmark = pytest.mark.filterwarnings("ignore::fenchel.adapters.guards.UnboundedObjectiveWarning")


def restated(
    model: nn.Module, batches: list[Tensor], term: plain.Term, threshold: float
) -> tuple[list[Tensor], list[float | None], int]:
    """SAR as a loop; also the averages it watched, and how often it went back to the source."""
    parameters = plain.affine(plain.in_place(model), stages=1)
    source = [p.detach().clone() for p in parameters]

    def fresh():
        return torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True)

    optimizer, average = fresh(), None
    outputs, averages, resets = [], [], 0
    for x in batches:
        logits = model(x)
        outputs.append(logits.detach())
        reliable = (plain.entropy(logits) < 0.4 * plain.MOST).nonzero().flatten()
        if len(reliable) == 0:
            averages.append(average)
            continue
        optimizer.zero_grad()
        term(logits)[reliable].mean().backward()
        gradient = [p.grad.clone() for p in parameters]
        length = torch.sqrt(sum(g.square().sum() for g in gradient))
        here = [p.detach().clone() for p in parameters]
        with torch.no_grad():
            for p, g in zip(parameters, gradient, strict=True):
                p.add_(0.05 * g / length)
        optimizer.zero_grad()
        logits = model(x)
        entropies = plain.entropy(logits).detach()
        still = torch.tensor([row for row in reliable if entropies[row] < 0.4 * plain.MOST])
        if len(still):
            term(logits)[still].mean().backward()
        with torch.no_grad():
            for p, value in zip(parameters, here, strict=True):
                p.copy_(value)
        if len(still) == 0:
            averages.append(average)
            continue
        optimizer.step()
        latest = float(entropies[still].mean())
        average = latest if average is None else 0.9 * average + 0.1 * latest
        if average < threshold:
            with torch.no_grad():
                for p, value in zip(parameters, source, strict=True):
                    p.copy_(value)
            optimizer, average = fresh(), None
            resets += 1
        averages.append(average)
    return outputs, averages, resets


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("loss", plain.TERMS)
@pytest.mark.parametrize("threshold", [0.0, 0.485])
def test_it_is_the_plain_loop(norm, loss, threshold):
    batches, model = plain.stream(), plain.network(norm)
    wanted, averages, resets = restated(model, batches, plain.TERMS[loss], threshold)
    assert bool(resets) == bool(threshold), "one case must reset, the other must not"
    adapted = fenchel.adapt(
        plain.network(norm),
        trained_with=loss,
        method="sar",
        threshold=threshold,
        learning_rate=0.02,
        predict="before",
    )
    for x, output, average in zip(batches, wanted, averages, strict=True):
        torch.testing.assert_close(adapted(x), output, rtol=1e-8, atol=1e-8)
        memory = adapted.state.memory
        assert (int(memory["averaged"]) > 0) == (average is not None)
        if average is not None:
            assert abs(float(memory["average"]) - average) < 1e-8
    assert adapted.health().resets == resets
    plain.agree(adapted, [], model, [])


def test_after_a_reset_the_average_starts_anew():
    """Public code overwrites the forgotten average with the collapsed one, and resets ever after."""
    adapted = fenchel.adapt(
        plain.network("layer"),
        trained_with="cross-entropy",
        method="sar:threshold=0.485",
        learning_rate=0.02,
    )
    restarts = []
    for x in plain.stream():
        adapted(x)
        restarts.append(int(adapted.state.memory["restarts"]))
    steps = [later - earlier for earlier, later in itertools.pairwise(restarts)]
    assert 0 < sum(steps) < len(steps)


def test_the_last_stage_stays_unless_parameters_say_otherwise():
    adapted = fenchel.adapt(plain.network("batch"), trained_with="poly", method="sar")
    assert list(adapted.state.parameters) == ["1.weight", "1.bias"]
    every = fenchel.adapt(
        plain.network("batch"), trained_with="poly", method="sar", parameters="normalization"
    )
    assert len(every.state.parameters) == 4
    vit = fenchel.models.build("vit_small", depth=12, width=12, heads=1, image_size=8)
    timm_like = fenchel.adapt(vit, trained_with="poly", method="sar", settings="imagenet-vit")
    stages = {name.split(".")[1] for name in timm_like.state.parameters}
    assert stages == {str(number) for number in range(9)}


def test_a_network_of_one_stage_moves_it():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    adapted = fenchel.adapt(model, trained_with="poly", method="sar")
    assert list(adapted.state.parameters) == ["1.weight", "1.bias"]
    with pytest.raises(ValueError, match="needs N from 1 to 1"):
        fenchel.adapt(
            plain.network("batch"), trained_with="poly", method="sar", parameters="but-last:2"
        )


@pytest.mark.parametrize("norm", ["batch", "layer", "group"])
def test_one_sample_and_constant_batches_do_no_harm(norm):
    adapted = fenchel.adapt(
        plain.network(norm), trained_with="cross-entropy", method="sar:margin=1"
    )
    constant = torch.full((4, 3, 8, 8), 0.5, dtype=torch.float64)
    small = pytest.warns(fenchel.AdaptationWarning, match="a batch of 1")
    with small if norm == "batch" else contextlib.nullcontext():
        for x in (plain.stream(1)[0][:1], constant, torch.zeros_like(constant)):
            assert torch.isfinite(adapted(x)).all()
    assert adapted.health().skipped_non_finite == 0


def test_the_statistics_of_the_source_survive_eval():
    model = plain.network("batch")
    before = copy.deepcopy(model.state_dict())
    adapted = fenchel.adapt(model, trained_with="poly", method="sar")
    for x in plain.stream(3):
        adapted.train()
        adapted(x)
        adapted.eval()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    adapted.disable()
    with torch.no_grad():
        assert torch.equal(adapted(x), model.eval()(x))
