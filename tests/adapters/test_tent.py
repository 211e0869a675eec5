"""With cross-entropy the adapter is TENT, restated here from its description."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import fenchel


def tent(model, batches, make_optimizer):
    """The original: batch statistics, one step on the mean softmax entropy, logits from before it."""
    model = copy.deepcopy(model).train()
    model.requires_grad_(False)
    moving = []
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # the original's networks have none; train() must not switch it on
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(True)
            module.track_running_stats = False
            module.running_mean = module.running_var = None
            moving += [module.weight, module.bias]
    optimizer = make_optimizer(moving)
    outputs = []
    for batch in batches:
        logits = model(batch)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean(0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(logits.detach())
    return outputs


@pytest.mark.parametrize(
    ("name", "rate", "make_optimizer"),
    [
        ("adam", 1e-3, lambda p: torch.optim.Adam(p, 1e-3, betas=(0.9, 0.999), weight_decay=0)),
        ("sgd", 1e-2, lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, nesterov=True)),
    ],
)
@pytest.mark.parametrize("method", ["conjugate", "entropy"])
def test_cross_entropy_is_tent_over_fifty_batches(
    make_network, make_stream, method, name, rate, make_optimizer
):
    model, batches = make_network(), make_stream(50, size=32)
    adapted = fenchel.adapt(
        model,
        trained_with=fenchel.CrossEntropy(),
        method=method,
        optimizer=name,
        learning_rate=rate,
        predict="before",
    )
    still = fenchel.adapt(model, method="bn")
    for batch, expected in zip(batches, tent(model, batches, make_optimizer), strict=True):
        torch.testing.assert_close(adapted(batch), expected, rtol=0, atol=1e-5)
    assert (adapted(batches[0]) - still(batches[0])).abs().max() > 1e-2, "it must have adapted"


def test_prediction_after_the_update_is_that_of_the_next_call_before_it(make_network, make_stream):
    model, batch = make_network(), make_stream(1)[0]
    settings = {"trained_with": fenchel.CrossEntropy(), "learning_rate": 0.02, "protect": False}
    after = fenchel.adapt(model, predict="after", **settings)(batch)
    before = fenchel.adapt(model, predict="before", **settings)
    first, second = before(batch), before(batch)
    assert torch.equal(after, second)
    assert not torch.equal(first, second)


def test_several_steps_on_a_batch_equal_several_batches(make_network, make_stream):
    model, batch = make_network(), make_stream(1)[0]
    settings = {
        "trained_with": fenchel.PolyLoss(epsilon=6.0),
        "learning_rate": 0.02,
        "protect": False,
    }
    thrice = fenchel.adapt(model, steps=3, **settings)
    once = fenchel.adapt(model, **settings)
    expected = [once(batch) for _ in range(3)][-1]
    assert torch.equal(thrice(batch), expected)
    assert thrice.health().updates == 3
    assert thrice.health().batches == 1


def test_temperature_divides_what_the_objective_sees_but_not_the_prediction(
    make_network, make_stream
):
    model, batch = make_network(), make_stream(1)[0]
    adapted = fenchel.adapt(
        model, method="entropy", temperature=2.0, predict="before", learning_rate=0.0
    )
    plain = fenchel.adapt(model, method="bn")
    assert torch.equal(adapted(batch), plain(batch))
    cooled = nn.Sequential(*make_network().children())
    cooled[-1].weight.data /= 2
    cooled[-1].bias.data /= 2
    warm = fenchel.adapt(model, method="entropy", temperature=2.0, learning_rate=0.02)
    cold = fenchel.adapt(cooled, method="entropy", learning_rate=0.02)
    warm(batch), cold(batch)
    for name, value in warm.state.parameters.items():
        torch.testing.assert_close(value, cold.state.parameters[name])
