"""Methods with memory: a teacher, a bank, a second gradient, a corrected output, each in one small class.

Each is held against a plain-torch version of itself, written from the formula.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fenchel
from fenchel.adapters import Inputs

CLASSES = 4
RATE = 0.05


def entropy(logits):
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)


@dataclass(frozen=True, kw_only=True)
class MeanTeacher(fenchel.Method):
    """The student follows a teacher's classes; the teacher is its moving average, and predicts."""

    momentum: float = 0.9

    def start(self, passes, batch):
        return {f"teacher.{name}": value.clone() for name, value in passes.source.items()}

    def update(self, passes, state, batch):
        teacher = self.teacher(state)
        taught = passes.logits(teacher, batch).argmax(-1)

        def loss(theta):
            logits = passes.logits(theta, batch)
            return passes.mean(F.cross_entropy(logits, taught, reduction="none"))

        state = passes.descend(state, loss)
        memory = {
            f"teacher.{name}": torch.lerp(value, teacher[name], self.momentum)
            for name, value in state.parameters.items()
        }
        return replace(state, memory=memory)

    def output(self, passes, state, batch):
        return passes.output(self.teacher(state), batch)

    def teacher(self, state):
        return {name.removeprefix("teacher."): value for name, value in state.memory.items()}


@dataclass(frozen=True, kw_only=True)
class MemoryBank(fenchel.Method):
    """Adapts on the last `size` images instead of the batch: a ring buffer with a count."""

    size: int = 32

    def start(self, passes, batch):
        images = batch.samples()
        return {
            "images": images.new_zeros(self.size, *images.shape[1:]),
            "count": torch.zeros((), dtype=torch.int64, device=images.device),
        }

    def update(self, passes, state, batch):
        images, count = batch.samples(), state.memory["count"]
        places = (count + torch.arange(len(images), device=images.device)) % self.size
        bank = state.memory["images"].index_copy(0, places, images)
        weights = (torch.arange(self.size, device=images.device) < count + len(images)).float()
        whole = batch.with_samples(bank)

        def loss(theta):
            return passes.mean(entropy(passes.logits(theta, whole)), weights)

        state = passes.descend(state, loss)
        return replace(state, memory={"images": bank, "count": count + len(images)})


@dataclass(frozen=True, kw_only=True)
class SharpnessAware(fenchel.Method):
    """Descends along the gradient found uphill, at a distance of `radius`."""

    objective: fenchel.Objective = field(default_factory=fenchel.Entropy)
    radius: float = 0.05

    def update(self, passes, state, batch):
        loss = passes.loss(self.objective, batch)
        uphill = passes.gradient(loss, state.parameters)
        reach = self.radius / uphill.norm()
        climbed = {n: v + reach * uphill.tensors[n] for n, v in state.parameters.items()}
        return passes.descend(state, loss, at=climbed)


@dataclass(frozen=True, kw_only=True)
class PriorCorrection(fenchel.Method):
    """Moves nothing: divides the probabilities by a running average of the predictions."""

    moves = False
    momentum: float = 0.8

    def start(self, passes, batch):
        _, logits = passes.features(passes.source, batch)
        return {"prior": torch.full_like(logits[0], 1 / logits.shape[-1])}

    def update(self, passes, state, batch):
        mean = passes.logits(state.parameters, batch).softmax(-1).mean(0)
        prior = torch.lerp(mean, state.memory["prior"], self.momentum)
        return replace(state, memory={"prior": prior})

    def output(self, passes, state, batch):
        output = passes.output(state.parameters, batch)
        logits = passes.scores(output) - state.memory["prior"].log()
        return passes.with_logits(output, logits)


METHODS = {
    "mean-teacher": MeanTeacher(),
    "memory-bank": MemoryBank(),
    "sharpness-aware": SharpnessAware(),
    "prior-correction": PriorCorrection(),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))


@every_method
def test_each_is_one_small_class(method):
    assert len(inspect.getsource(type(method)).splitlines()) < 40


# --- the same, in plain torch ---------------------------------------------------------------------


class Plain:
    """A copy of the network in plain torch: batch statistics, plain gradient descent on the norms."""

    def __init__(self, model):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.moving = []
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.train()
                module.track_running_stats = False
                module.running_mean = module.running_var = None
            if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                module.requires_grad_(True)
                self.moving += [module.weight, module.bias]

    def gradient(self, value):
        return torch.autograd.grad(value, self.moving)

    @torch.no_grad()
    def move(self, gradients, rate=RATE):
        for value, gradient in zip(self.moving, gradients, strict=True):
            value -= rate * gradient

    @torch.no_grad()
    def logits(self, batch):
        return self.model(batch)


def teacher_in_plain_torch(model, batches):
    student, teacher = Plain(model), Plain(model)
    for batch in batches:
        taught = teacher.logits(batch).argmax(-1)
        chosen = student.model(batch).log_softmax(-1)[range(len(batch)), taught]
        value = -chosen.mean()
        student.move(student.gradient(value))
        for theirs, its in zip(teacher.moving, student.moving, strict=True):
            theirs.data = 0.9 * theirs.data + 0.1 * its.data
        yield teacher.logits(batch)


def bank_in_plain_torch(model, batches):
    plain, slots, count = Plain(model), [torch.zeros_like(batches[0][0])] * 32, 0
    for batch in batches:
        for image in batch:
            slots[count % 32] = image
            count += 1
        filled = min(count, 32)
        value = entropy(plain.model(torch.stack(slots)))[:filled].mean()
        plain.move(plain.gradient(value))
        yield plain.logits(batch)


def sharpness_in_plain_torch(model, batches):
    plain = Plain(model)
    for batch in batches:
        first = plain.gradient(entropy(plain.model(batch)).mean())
        norm = torch.cat([g.flatten() for g in first]).norm()
        plain.move(first, -0.05 / norm)
        second = plain.gradient(entropy(plain.model(batch)).mean())
        plain.move(first, 0.05 / norm)
        plain.move(second)
        yield plain.logits(batch)


def correction_in_plain_torch(model, batches):
    plain, prior = Plain(model), torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    for batch in batches:
        logits = plain.logits(batch)
        prior = 0.8 * prior + 0.2 * logits.softmax(-1).mean(0)
        yield logits - prior.log()


ORACLES = {
    "mean-teacher": teacher_in_plain_torch,
    "memory-bank": bank_in_plain_torch,
    "sharpness-aware": sharpness_in_plain_torch,
    "prior-correction": correction_in_plain_torch,
}


class PerPixel(nn.LayerNorm):
    """A layer normalisation of the channels of an image."""

    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def adapted_with(model, method, **options):
    optimizer = fenchel.SGD(learning_rate=RATE, momentum=0.0, nesterov=False)
    return fenchel.adapt(model, method=method, optimizer=optimizer, **options)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, PerPixel])
@pytest.mark.parametrize("name", METHODS)
def test_it_does_what_its_formula_says(make_network, make_stream, name, norm):
    model = make_network(norm=norm).double()
    batches = [batch.double() for batch in make_stream(12)]
    adapted = adapted_with(model, METHODS[name])
    unmoved = fenchel.adapt(model, method="entropy", learning_rate=0.0)
    for batch, expected in zip(batches, ORACLES[name](model, batches), strict=True):
        torch.testing.assert_close(adapted(batch), expected, rtol=0, atol=1e-9)
    assert (expected - unmoved(batch)).abs().max() > 1e-3, "the method must have done something"


# --- contracts of memory --------------------------------------------------------------------------


@every_method
def test_memory_is_saved_and_restored_bit_for_bit(make_network, make_stream, method):
    model, batches = make_network(), make_stream(4)
    one = adapted_with(model, method)
    for batch in batches[:2]:
        one(batch)
    other = adapted_with(model, method)
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()})
    assert other.state.memory.keys() == one.state.memory.keys()
    for batch in batches[2:]:
        assert torch.equal(one(batch), other(batch))


@every_method
def test_memory_is_reset_and_the_model_untouched(make_network, make_stream, untouched, method):
    model, batches = make_network(), make_stream(3)
    with untouched(model):
        adapted = adapted_with(model, method)
        first = [adapted(batch) for batch in batches]
        adapted.reset()
        assert adapted.state.memory == {}
        assert all(map(torch.equal, first, [adapted(batch) for batch in batches]))


@every_method
def test_memory_moves_with_the_adapter(make_network, make_stream, method):
    adapted = adapted_with(make_network(), method)
    adapted(make_stream(1)[0])
    adapted.double()
    kinds = {value.dtype for value in adapted.state.memory.values() if value.is_floating_point()}
    assert kinds <= {torch.float64}
    assert adapted(make_stream(2)[1].double()).isfinite().all()


@every_method
def test_a_frozen_adapter_predicts_from_memory_and_leaves_it(make_network, make_stream, method):
    adapted = adapted_with(make_network(), method)
    batches = make_stream(2)
    adapted.freeze()
    assert adapted(batches[0]).shape == (20, CLASSES)  # before anything is remembered
    adapted.resume()
    adapted(batches[0])
    adapted.freeze()
    state = adapted.state
    assert torch.equal(adapted(batches[1]), adapted(batches[1]))
    assert adapted.state is state


@dataclass(frozen=True, kw_only=True)
class Poisoned(fenchel.Method):
    """Leaves something infinite in one part of the state at the second batch."""

    where: str = "memory"

    def start(self, passes, batch):
        return {"seen": torch.zeros(()), "count": torch.zeros((), dtype=torch.int64)}

    def update(self, passes, state, batch):
        state = passes.descend(state, passes.loss(fenchel.Entropy(), batch))
        count = state.memory["count"] + 1
        bad = torch.where(count == 2, torch.inf, 0.0)
        parameters = state.parameters
        if self.where == "parameters":
            parameters = {name: value + bad for name, value in parameters.items()}
        seen = state.memory["seen"] + 1 + (bad if self.where == "memory" else 0)
        return replace(state, parameters=parameters, memory={"seen": seen, "count": count})


@pytest.mark.parametrize("where", ["memory", "parameters"])
def test_the_guard_undoes_all_that_a_method_did(make_network, make_stream, where):
    adapted = adapted_with(make_network(), Poisoned(where=where))
    batches = make_stream(3)
    adapted(batches[0])
    before = adapted.state
    adapted(batches[1])
    for group in ("parameters", "moments", "memory"):
        for name, value in getattr(before, group).items():
            assert torch.equal(getattr(adapted.state, group)[name], value), (group, name)
    health = adapted.health()
    assert (health.updates, health.skipped_non_finite) == (1, 1)


@dataclass(frozen=True)
class Infinite(fenchel.Objective):
    def value(self, h):
        return h.sum(-1) * float("inf")


def test_a_skipped_step_takes_the_memory_back_with_it(make_network, make_stream):
    @dataclass(frozen=True, kw_only=True)
    class Counting(fenchel.Method):
        def start(self, passes, batch):
            return {"count": torch.zeros(())}

        def update(self, passes, state, batch):
            state = passes.descend(state, passes.loss(Infinite(), batch))
            return replace(state, memory={"count": state.memory["count"] + 1})

    adapted = adapted_with(make_network(), Counting())
    adapted(make_stream(1)[0])
    assert adapted.state.memory["count"] == 0
    assert adapted.health().skipped_non_finite == 1


def test_a_memory_that_grows_is_refused_and_nothing_is_lost(make_network, make_stream):
    @dataclass(frozen=True, kw_only=True)
    class Growing(fenchel.Method):
        def start(self, passes, batch):
            return {"all": batch.samples()[:0]}

        def update(self, passes, state, batch):
            grown = torch.cat([state.memory["all"], batch.samples()])
            return replace(state, memory={"all": grown})

    adapted = adapted_with(make_network(), Growing())
    before = adapted.state
    with pytest.raises(ValueError, match=r"memory keeps the names, shapes.*all.*ring buffer"):
        adapted(make_stream(1)[0])
    assert adapted.state is before


def test_a_saved_memory_does_not_fit_a_method_without_one(make_network, make_stream, adapt):
    teacher = adapted_with(make_network(), MeanTeacher())
    teacher(make_stream(1)[0])
    with pytest.raises(ValueError, match="another adapter"):
        adapt(make_network()).load_state_dict(teacher.state_dict())


def test_the_same_draws_come_with_the_same_seed_and_batch(make_network, make_stream):
    drawn = []

    @dataclass(frozen=True, kw_only=True)
    class Drawing(fenchel.Method):
        def update(self, passes, state, batch):
            drawn.append(torch.rand(3, generator=passes.generator))
            return state

    batches = make_stream(2)
    for seed in (0, 0, 1):
        adapted = adapted_with(make_network(), Drawing(), seed=seed)
        for batch in batches:
            adapted(batch)
    assert torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3])
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[4])


# --- weights, features, outputs -------------------------------------------------------------------


def test_weights_scale_the_gradient_of_their_samples(make_network, make_stream):
    @dataclass(frozen=True)
    class Weighted(fenchel.Objective):
        def value(self, h):
            return entropy(h)

        def weight(self, h):
            return torch.linspace(0, 2, len(h))  # the first sample is left out

    model, batch = make_network(), make_stream(1)[0]
    plain = Plain(model)
    value = (torch.linspace(0, 2, 20) * entropy(plain.model(batch))).sum() / 19
    plain.move(plain.gradient(value))
    optimizer = fenchel.SGD(learning_rate=RATE, momentum=0.0, nesterov=False)
    adapted = fenchel.adapt(model, objective=Weighted(), optimizer=optimizer)
    torch.testing.assert_close(adapted(batch), plain.logits(batch))


class TwoHeads(nn.Module):
    """Features, a main head, and another linear layer that runs after it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.LayerNorm(8))
        self.main, self.extra = nn.Linear(8, 4), nn.Linear(4, 2)

    def forward(self, x):
        logits = self.main(self.body(x))
        return logits, self.extra(logits)


@pytest.mark.parametrize(("layer", "width"), [(None, 4), ("main", 8), ("body.1", 192)])
def test_features_are_what_the_head_is_given(make_stream, layer, width):
    seen = {}

    @dataclass(frozen=True, kw_only=True)
    class Looking(fenchel.Method):
        def update(self, passes, state, batch):
            seen["features"], seen["logits"] = passes.features(state.parameters, batch)
            return state

    model, batch = TwoHeads(), make_stream(1)[0]
    adapted = adapted_with(model, Looking(), logits=0, features=layer)
    output = adapted(batch)
    assert seen["features"].shape == (20, width)
    assert torch.equal(seen["logits"], output[0])
    assert seen["features"].grad_fn is None
    if layer == "main":
        torch.testing.assert_close(model.main(seen["features"]), output[0])


def test_a_layer_that_is_none_is_refused_with_the_nearest(make_network):
    with pytest.raises(ValueError, match=r"Did you mean 'main'"):
        adapted_with(TwoHeads(), "entropy", logits=0, features="mian")


@pytest.mark.parametrize(
    ("wrap", "logits", "get"),
    [
        (lambda a: a, None, lambda out: out),
        (lambda a: {"scores": a, "n": 3}, "scores", lambda out: out["scores"]),
        (lambda a: (1, a), 1, lambda out: out[1]),
        (lambda a: [a], lambda out: out[0], lambda out: out[0]),
    ],
    ids=["tensor", "dictionary", "tuple", "callable"],
)
def test_a_corrected_output_keeps_the_form_of_the_models_own(
    make_network, make_stream, wrap, logits, get
):
    class Wrapped(nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body

        def forward(self, x):
            return wrap(self.body(x))

    model, batch = make_network(), make_stream(1)[0]
    plain = adapted_with(model, PriorCorrection())(batch)
    output = adapted_with(Wrapped(model), PriorCorrection(), logits=logits)(batch)
    assert type(output) is type(wrap(batch))
    assert torch.equal(get(output), plain)


def test_logits_that_are_no_part_of_the_output_cannot_be_corrected(make_network, make_stream):
    adapted = adapted_with(make_network(), PriorCorrection(), logits=lambda out: out * 2)
    with pytest.raises(TypeError, match="no part of what the model returned"):
        adapted(make_stream(1)[0])


def test_a_method_meets_the_batch_as_it_came(make_network, make_stream):
    met = []

    @dataclass(frozen=True, kw_only=True)
    class Looking(fenchel.Method):
        def update(self, passes, state, batch):
            met.append(batch)
            assert batch is passes.batch
            return state

    batch = make_stream(1)[0]
    adapted_with(make_network(), Looking())(batch)
    assert isinstance(met[0], Inputs)
    assert torch.equal(met[0].samples(), batch)


def test_methods_have_options_that_are_read_off_the_class(make_network):
    assert SharpnessAware.options()["radius"] == 0.05
    adapted = fenchel.adapt(make_network(), method=MeanTeacher, momentum=0.5)
    assert adapted.settings.method == MeanTeacher(momentum=0.5)
    with pytest.raises(ValueError, match="Did you mean 'momentum'"):
        fenchel.adapt(make_network(), method=MeanTeacher, momentun=0.5)
    with pytest.raises(TypeError, match="brings its own options; got momentum"):
        fenchel.adapt(make_network(), method=MeanTeacher(), momentum=0.5)
