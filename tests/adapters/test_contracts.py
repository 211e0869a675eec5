"""The state contracts, bit for bit: reset, context, exceptions, modes, and an untouched model."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import nn

import fenchel
from fenchel.adapters import METHODS, Adapter
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS
from fenchel.objectives import Objective

FURTHER_METHODS = (*FIELD_METHODS, "protected")
ALL_METHODS = (*STANDARD_METHODS, *FURTHER_METHODS)


def test_no_method_is_forgotten():
    """Objectives that are shapes or parts of methods are descent like the others."""
    parts = {"scaled-entropy", "quadratic", "likelihood-ratio"}
    assert {*ALL_METHODS, *parts} == set(METHODS)


@pytest.mark.parametrize(
    ("method", "predict"),
    [*product(STANDARD_METHODS, ["before", "after"]), *((name, None) for name in FURTHER_METHODS)],
)
def test_the_model_is_untouched_by_adaptation(
    make_network, make_stream, adapt, untouched, method, predict
):
    model = make_network().train()
    model[1].eval()
    model[3].weight.requires_grad_(False)
    model[8].bias.grad = torch.ones(4)
    with untouched(model):
        adapted = adapt(model, method, predict=predict)
        for batch in make_stream(3):
            adapted(batch)
        adapted.reset()
        adapted.freeze()
        adapted(batch)
        adapted.disable()
        adapted(batch)
        assert adapted.unload() is model


@pytest.mark.parametrize(
    ("method", "statistics"),
    [
        *product(STANDARD_METHODS, ["batch", "source", 0.3]),
        *product(FURTHER_METHODS, [None, 0.3]),
    ],
)
def test_reset_is_bit_exact(make_network, make_stream, adapt, same_state, method, statistics):
    batches = make_stream(3)
    adapted = adapt(make_network(), method, statistics=statistics)
    fresh = copy.deepcopy(adapted.state)
    first = [adapted(batch) for batch in batches]
    adapted.reset()
    for group in ("parameters", "statistics", "moments"):
        for name, value in getattr(adapted.state, group).items():
            assert torch.equal(value, getattr(fresh, group)[name])
    again = [adapted(batch) for batch in batches]
    assert all(map(torch.equal, first, again))
    assert adapted.state.resets == 1  # those of the method itself are forgotten with its memory


@pytest.mark.filterwarnings("ignore:.*no batch-normalisation layers")
@pytest.mark.parametrize("method", ALL_METHODS)
def test_every_method_adapts_group_norm_and_a_vision_transformer(
    make_network, make_stream, adapt, untouched, method
):
    tiny = {"classes": 4, "image_size": 8, "width": 12, "depth": 2, "heads": 1}
    for model in (
        make_network(norm=lambda channels: nn.GroupNorm(2, channels)),
        fenchel.models.build("vit_small", **tiny),
    ):
        with untouched(model):
            adapted = adapt(model, method)
            outputs = [adapted(batch) for batch in make_stream(2)]
        assert all(output.isfinite().all() for output in outputs)
        assert bool(adapted.health().updates) == adapted.settings.method.moves
        assert bool(adapted.state.parameters) == adapted.settings.method.moves


def test_the_context_hands_back_an_identical_model(make_network, make_stream, adapt, untouched):
    model = make_network()
    batches = make_stream(4)
    with untouched(model):
        with adapt(model) as adapted:
            for batch in batches:
                adapted(batch)
        with pytest.raises(RuntimeError, match="was unloaded"):
            adapted(batches[0])


def test_an_error_in_the_context_is_passed_on_and_the_model_is_identical(
    make_network, make_stream, adapt, untouched
):
    model, batch = make_network(), make_stream(1)[0]

    def fail_midway():
        with adapt(model) as adapted:
            adapted(batch)
            raise ZeroDivisionError

    with untouched(model), pytest.raises(ZeroDivisionError):
        fail_midway()


@pytest.mark.parametrize("action", [Adapter.freeze, Adapter.resume, Adapter.disable])
def test_an_unloaded_adapter_refuses_to_go_on(make_network, adapt, action):
    adapted = adapt(make_network())
    adapted.unload()
    with pytest.raises(RuntimeError, match="was unloaded"):
        action(adapted)
    assert adapted.health().mode == "unloaded"


class Fuse(nn.Module):
    """Passes its input on until the call it is set for; shared by all copies of a model."""

    left: int | None = None
    error: type[BaseException] = RuntimeError

    @classmethod
    def burn(cls):
        if cls.left is not None:
            cls.left -= 1
            if cls.left == 0:
                raise cls.error("blown")

    def forward(self, x):
        self.burn()
        return x


@dataclass(frozen=True)
class Fragile(Objective):
    """An entropy whose parts may each blow the fuse."""

    where: str = "value"
    views: bool = False

    def value(self, h):
        if self.where == "value":
            Fuse.burn()
        h = h.log_softmax(-1)
        entropy = -(h.exp() * h).sum(-1)
        return entropy.mean(0) if self.views else entropy

    def weight(self, h):
        if self.where == "weight":
            Fuse.burn()

    def make_views(self, x, generator):
        if self.where == "make_views":
            Fuse.burn()
        return torch.stack([x, x + 0.1, x + 0.2]) if self.views else None


def fragile_logits(output):
    Fuse.burn()
    return output


@pytest.fixture
def fuse(monkeypatch):
    def set_for(call, error=RuntimeError):
        monkeypatch.setattr(Fuse, "error", error)
        monkeypatch.setattr(Fuse, "left", call)

    yield set_for
    Fuse.left = None


# Each tells where the fuse sits, whether the objective makes views, and which call of it blows: a step
# with three views runs the model at 1, 2, 3 and, for the prediction, at 4.
FAILURES = {
    "first-pass": ("model", False, 1),
    "second-pass": ("model", False, 2),
    "second-step": ("model", False, 2),
    "first-view": ("model", True, 1),
    "last-view": ("model", True, 3),
    "prediction-after-views": ("model", True, 4),
    "objective": ("value", False, 1),
    "weighting": ("weight", False, 1),
    "making-views": ("make_views", True, 1),
    "logits": ("logits", False, 1),
    "logits-of-second-view": ("logits", True, 2),
    "optimizer": ("optimizer", False, 1),
}


@pytest.mark.parametrize(("statistics", "error"), [("batch", KeyboardInterrupt), (0.3, ValueError)])
@pytest.mark.parametrize("failure", FAILURES)
def test_an_exception_anywhere_leaves_all_as_it_was(
    make_network, make_stream, untouched, same_state, fuse, failure, statistics, error
):
    where, views, call = FAILURES[failure]
    if statistics != "batch" and where == "model":
        call += 1  # the pass that mixes the statistics comes first
    model = make_network()
    model.insert(5, Fuse() if where == "model" else nn.Identity())

    def make_optimizer(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
        optimizer.register_step_post_hook(lambda *_: where == "optimizer" and Fuse.burn())
        return optimizer

    adapted, spared = (
        fenchel.adapt(
            model,
            objective=Fragile(where=where, views=views),
            optimizer=make_optimizer,
            statistics=statistics,
            steps=2 if failure == "second-step" else 1,
            logits=fragile_logits if where == "logits" else None,
        )
        for _ in range(2)
    )
    batches = make_stream(3)
    assert torch.equal(adapted(batches[0]), spared(batches[0]))
    before = adapted.state
    fuse(call, error)
    with untouched(model), pytest.raises(error, match="blown"):
        adapted(batches[1])
    assert Fuse.left == 0, "the fuse must have blown where it was meant to"
    fuse(None)
    assert adapted.state is before
    same_state(adapted, spared)
    for batch in batches[1:]:
        assert torch.equal(adapted(batch), spared(batch))
    same_state(adapted, spared)


def test_freeze_predicts_without_learning_and_resume_goes_on(
    make_network, make_stream, adapt, same_state
):
    batches = make_stream(4)
    adapted, twin = adapt(make_network()), adapt(make_network())
    adapted(batches[0]), twin(batches[0])
    adapted.freeze()
    state = adapted.state
    frozen = adapted(batches[1])
    assert adapted.state is state
    assert adapted.health().mode == "frozen"
    assert torch.equal(frozen, adapted(batches[1]))
    adapted.resume()
    assert not torch.equal(adapted(batches[1]), frozen)
    twin(batches[1])
    same_state(adapted, twin)


def test_freeze_uses_the_mixed_statistics_without_mixing_more(make_network, make_stream, adapt):
    batches = make_stream(3)
    adapted = adapt(make_network(), statistics=0.5)
    adapted(batches[0])
    adapted.freeze()
    alone, together = adapted(batches[1][:1]), adapted(batches[1])[:1]
    torch.testing.assert_close(alone, together)  # each sample on its own: no batch statistics


def test_disable_predicts_with_the_source_bit_for_bit(make_network, make_stream, adapt):
    model = make_network().eval()
    batches = make_stream(3)
    adapted = adapt(model)
    adapted(batches[0])
    state = adapted.state
    adapted.disable()
    with torch.no_grad():
        assert torch.equal(adapted(batches[1]), model(batches[1]))
    assert adapted.state is state
    assert adapted.health().mode == "disabled"
    adapted.resume()
    assert not torch.equal(adapted(batches[1]), model(batches[1]))


def test_method_source_is_the_model_itself(make_network, make_stream, adapt):
    model, batch = make_network().eval(), make_stream(1)[0]
    assert torch.equal(adapt(model, "source")(batch), model(batch))


def test_episodic_forgets_before_every_batch(make_network, make_stream, adapt):
    model, batches = make_network(), make_stream(3)
    adapted = adapt(model, episodic=True, optimizer="adam")
    for batch in batches:
        assert torch.equal(adapted(batch), adapt(model, optimizer="adam")(batch))
    health = adapted.health()
    assert (health.batches, health.updates, health.resets) == (3, 3, 3)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_deepcopy_goes_on_alike_and_apart(make_network, make_stream, adapt, same_state, method):
    batches = make_stream(4)
    adapted = adapt(make_network(), method, statistics=0.2, optimizer="adam")
    adapted(batches[0])
    twin = copy.deepcopy(adapted)
    assert twin.model is not adapted.model
    same_state(adapted, twin)
    for batch in batches[1:3]:
        assert torch.equal(adapted(batch), twin(batch))
    same_state(adapted, twin)
    held = {name: value.clone() for name, value in twin.state_dict().items()}
    adapted(batches[3])
    adapted.model[1].weight.data.zero_()
    assert all(torch.equal(value, held[name]) for name, value in twin.state_dict().items())
    assert twin.model[1].weight.abs().sum() > 0


def test_a_deepcopy_keeps_the_mode(make_network, adapt):
    adapted = adapt(make_network())
    adapted.freeze()
    assert copy.deepcopy(adapted).health().mode == "frozen"


def test_the_adapted_model_is_a_separate_copy_that_predicts_alike(
    make_network, make_stream, adapt, untouched
):
    model, batches = make_network(), make_stream(3)
    with untouched(model):
        adapted = adapt(model, statistics=0.3)
        for batch in batches:
            adapted(batch)
        twin = adapted.adapted_model().eval()
        adapted.freeze()
        with torch.no_grad():
            assert torch.equal(twin(batches[0]), adapted(batches[0]))
        twin[1].weight.data.zero_()
    assert adapted.state.parameters["1.weight"].abs().sum() > 0
