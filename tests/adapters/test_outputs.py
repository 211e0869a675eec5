"""Models that return more than a tensor and take more than one."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, fields

import pytest
import torch
from torch import Tensor, nn

import fenchel

Scores = namedtuple("Scores", ["logits", "features"])


@dataclass
class Prediction:
    logits: Tensor
    features: Tensor
    note: str = "kept"


@dataclass(frozen=True)
class FrozenPrediction:
    scores: Tensor


class ModelOutput(OrderedDict):
    """As in a well-known library: an ordered dictionary whose entries are attributes too."""

    def __post_init__(self):
        for field in fields(self):
            self[field.name] = getattr(self, field.name)


@dataclass
class ClassifierOutput(ModelOutput):
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class Returning(nn.Module):
    """A small network whose output is put into some container."""

    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)
        self.wrap = wrap

    def forward(self, x):
        features = self.body(x)
        return self.wrap(self.head(features), features)


OUTPUTS = {
    "tuple": (lambda a, b: (a, b), lambda out: out[0], None),
    "list": (lambda a, b: [b, a], lambda out: out[1], None),
    "dictionary": (lambda a, b: {"logits": a, "features": b}, None, None),
    "nested": (lambda a, b: {"heads": [a, b]}, lambda out: out["heads"][0], None),
    "namedtuple": (Scores, None, None),
    "dataclass": (Prediction, None, lambda out: out.features),
    "frozen-dataclass": (lambda a, b: FrozenPrediction(a), lambda out: out.scores, None),
    "model-output": (
        lambda a, b: ClassifierOutput(logits=a, hidden_states=(b,)),
        None,
        lambda out: out.hidden_states[0],
    ),
}


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_what_the_model_returns_is_returned(make_stream, adapt, name, predict):
    wrap, pick, rest = OUTPUTS[name]
    plain = adapt(Returning(lambda a, b: a), predict=predict)
    wrapped = adapt(Returning(wrap), predict=predict, logits=pick)
    kind = type(wrap(torch.zeros(1, 4), torch.zeros(1, 8)))
    for batch in make_stream(3):
        output = wrapped(batch)
        assert type(output) is kind
        logits = pick(output) if pick else output["logits"] if kind is dict else output.logits
        assert torch.equal(logits, plain(batch))
        tensors = [logits] if rest is None else [logits, rest(output)]
        assert all(tensor.grad_fn is None for tensor in tensors), "nothing of the graph may stay"
    assert wrapped.health().updates == 3


def test_an_output_whose_logits_are_unclear_asks_for_logits(make_stream, adapt):
    adapted = adapt(Returning(lambda a, b: (a, b)))
    with pytest.raises(TypeError, match=r"returned tuple.*Pass logits="):
        adapted(make_stream(1)[0])


@pytest.mark.parametrize(
    ("logits", "error", "message"),
    [
        (lambda out: out.argmax(-1), TypeError, "float tensor; got torch.int64"),
        (lambda out: None, TypeError, "float tensor; got NoneType"),
        (lambda out: out.mean(), ValueError, r"shape \(20, ..., classes\)"),
        (lambda out: out[:5], ValueError, r"got \(5, 4\)"),
        (lambda out: out.detach(), ValueError, "no gradient to follow"),
    ],
    ids=["indices", "nothing", "scalar", "too-few", "detached"],
)
def test_logits_that_cannot_serve_are_refused(make_stream, adapt, logits, error, message):
    adapted = adapt(Returning(lambda a, b: a), logits=logits)
    before = adapted.state
    with pytest.raises(error, match=message):
        adapted(make_stream(1)[0])
    assert adapted.state is before


def test_classes_on_axis_1_are_moved_by_logits(make_stream):
    """A dense prediction adapts as the same pixels would, classes last."""
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    by_pixel = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    matching = {
        name: value.reshape(by_pixel.state_dict()[name].shape)
        for name, value in dense.state_dict().items()
    }
    by_pixel.load_state_dict(matching)
    settings = {
        "trained_with": fenchel.PolyLoss(epsilon=2.0),
        "learning_rate": 0.05,
        "protect": False,
    }
    one = fenchel.adapt(dense, logits=lambda output: output.movedim(1, -1), **settings)
    other = fenchel.adapt(by_pixel, **settings)
    for batch in make_stream(3):
        pixels = batch.movedim(1, -1).reshape(-1, 3)
        expected = other(pixels).reshape(20, 8, 8, 4).movedim(-1, 1)
        torch.testing.assert_close(one(batch), expected, rtol=1e-4, atol=1e-5)


class TwoInputs(nn.Module):
    """Takes images, a shift, and a few options."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.head = nn.BatchNorm1d(192), nn.Linear(192, 4)

    def forward(self, images, shift=None, *, scale=1.0, extra=None):
        x = images["pixels"] if isinstance(images, dict) else images
        x = x.flatten(1) * scale
        x = x if shift is None else x + shift
        x = x if extra is None else x + extra["more"][0]
        return self.head(self.norm(x))


def test_several_inputs_reach_the_model_however_they_are_passed(make_stream, adapt):
    batch = make_stream(1)[0]
    shift = torch.linspace(0, 1, 20)[:, None]
    baseline = adapt(TwoInputs())((batch.flatten(1) * 2.0 + shift).reshape(batch.shape))
    assert torch.equal(adapt(TwoInputs())(batch, shift, scale=2.0), baseline)
    assert torch.equal(adapt(TwoInputs())(images=batch, shift=shift, scale=2.0), baseline)
    assert torch.equal(adapt(TwoInputs())({"pixels": batch}, shift, scale=2.0), baseline)
    nested = adapt(TwoInputs())(batch, scale=2.0, extra={"more": [shift]})
    assert torch.equal(nested, baseline)


@pytest.mark.parametrize("key", ["positional", "keyword", "nested"])
def test_views_replace_the_samples_and_leave_other_inputs(make_stream, adapt, key):
    batch, shift = make_stream(1)[0], torch.full((20, 1), 0.5)
    expected = adapt(TwoInputs(), "memo")(batch, shift)
    adapted = adapt(TwoInputs(), "memo")
    if key == "positional":
        output = adapted(batch, shift=shift)
    elif key == "keyword":
        output = adapted(images=batch, shift=shift)
    else:
        output = adapted({"pixels": batch}, shift)
    assert torch.equal(output, expected)


def test_a_call_without_any_tensor_is_refused(adapt):
    with pytest.raises(TypeError, match="needs a tensor of samples"):
        adapt(TwoInputs())([1.0, 2.0])


def test_token_indices_are_welcome_as_input():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.LayerNorm(40), nn.Linear(40, 3))
    adapted = fenchel.adapt(model, method="entropy", learning_rate=0.05)
    output = adapted(torch.randint(30, (20, 5)))
    assert output.shape == (20, 3)
    assert adapted.health().updates == 1


@pytest.mark.parametrize(
    "loss", [fenchel.ExponentialLoss(), fenchel.BinaryCrossEntropy()], ids=repr
)
@pytest.mark.parametrize("method", ["conjugate", "entropy", "hard", "soft"])
def test_one_score_and_multi_label_models_adapt(make_stream, loss, method):
    torch.manual_seed(0)
    scores = 1 if isinstance(loss, fenchel.ExponentialLoss) else 5
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.Linear(8, scores))
    adapted = fenchel.adapt(model, trained_with=loss, method=method, learning_rate=0.05)
    for batch in make_stream(2):
        assert adapted(batch).shape == (20, scores)
    assert adapted.health().updates == 2
    assert not torch.equal(adapted.state.parameters["2.weight"], model[2].weight)
