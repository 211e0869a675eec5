"""The forms in which a loss of torch may be given, and what is refused in which words."""

import functools
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fenchel.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    LabelSmoothing,
    OneOfMany,
    SquaredLoss,
    UnsuitableLossError,
    YesOrNo,
    from_torch,
)

CLASSES = 4
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.8])
OTHER = torch.tensor([3.0, 0.4, 1.0, 1.7])


def scores() -> Tensor:
    return torch.randn(6, CLASSES, dtype=torch.float64)


class Renamed(nn.CrossEntropyLoss):
    pass


class Doubled(nn.CrossEntropyLoss):
    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return 2 * super().forward(h, y)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (nn.CrossEntropyLoss, CrossEntropy()),
        (nn.BCEWithLogitsLoss, BinaryCrossEntropy()),
        (nn.MSELoss, SquaredLoss()),
        (Renamed, CrossEntropy()),
        (Renamed(label_smoothing=0.1), LabelSmoothing(smoothing=0.1)),
        (nn.CrossEntropyLoss(ignore_index=255, reduction="sum"), CrossEntropy()),
        (F.cross_entropy, CrossEntropy()),
        (F.nll_loss, CrossEntropy()),
        (F.binary_cross_entropy_with_logits, BinaryCrossEntropy()),
        (F.multilabel_soft_margin_loss, BinaryCrossEntropy()),
        (F.mse_loss, SquaredLoss()),
        (functools.partial(F.mse_loss, reduction="none"), SquaredLoss()),
        (functools.partial(F.cross_entropy, weight=None, ignore_index=0), CrossEntropy()),
        (functools.partial(F.cross_entropy, label_smoothing=0.1), LabelSmoothing(smoothing=0.1)),
        (
            functools.partial(nn.CrossEntropyLoss, label_smoothing=0.1),
            LabelSmoothing(smoothing=0.1),
        ),
    ],
)
def test_classes_functions_and_partials_map_as_their_modules(
    given: object, expected: object
) -> None:
    assert from_torch(given) == expected


@pytest.mark.parametrize(
    ("function", "module"),
    [
        (functools.partial(F.cross_entropy, weight=WEIGHT), nn.CrossEntropyLoss(weight=WEIGHT)),
        (functools.partial(F.nll_loss, weight=WEIGHT), nn.NLLLoss(weight=WEIGHT)),
        (functools.partial(F.multi_margin_loss, p=2), nn.MultiMarginLoss(p=2)),
        (
            functools.partial(F.binary_cross_entropy_with_logits, pos_weight=OTHER),
            nn.BCEWithLogitsLoss(pos_weight=OTHER),
        ),
    ],
)
def test_partial_with_weights_derives_as_its_module(function: object, module: nn.Module) -> None:
    h = scores()
    ours, theirs = from_torch(function), from_torch(module)
    assert repr(ours) == repr(theirs)
    assert torch.equal(ours.label(h), theirs.label(h))
    assert torch.equal(ours.conjugate(h), theirs.conjugate(h))


@pytest.mark.parametrize(
    "given",
    [
        None,
        "cross-entropy",
        3,
        len,
        lambda h, y: h,
        F.relu,
        functools.partial(F.relu, inplace=True),
        functools.partial(nn.CrossEntropyLoss(), weight=WEIGHT),
        nn.Linear,
        nn.Linear(2, 2),
        nn.Module(),
        Doubled,
        Doubled(),
        CrossEntropy(),
    ],
)
def test_anything_else_is_not_recognised(given: object) -> None:
    assert from_torch(given) is None


def test_weights_are_those_of_the_moment() -> None:
    module = nn.CrossEntropyLoss(weight=WEIGHT.clone())
    loss = from_torch(module)
    h = scores()
    before = loss.conjugate(h)
    module.weight.mul_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert torch.equal(loss.conjugate(h), before)
    assert not torch.allclose(from_torch(module).conjugate(h), before)


@pytest.mark.parametrize(
    ("module", "space"),
    [
        (nn.CrossEntropyLoss(weight=WEIGHT), OneOfMany()),
        (nn.MultiMarginLoss(p=2), OneOfMany()),
        (nn.BCEWithLogitsLoss(pos_weight=WEIGHT), YesOrNo()),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0)), YesOrNo()),
        (nn.MultiLabelSoftMarginLoss(weight=WEIGHT), YesOrNo()),
    ],
)
def test_derived_losses_know_their_labels_and_can_be_pickled(
    module: nn.Module, space: object
) -> None:
    loss = from_torch(module)
    assert loss.labels == space
    again = pickle.loads(pickle.dumps(loss))
    h = scores()
    assert torch.equal(again.conjugate(h), loss.conjugate(h))
    assert loss.conjugate(h.float()).dtype == torch.float32


def test_weights_for_other_classes_than_the_scores_are_an_error() -> None:
    loss = from_torch(nn.BCEWithLogitsLoss(pos_weight=WEIGHT))
    for classes in (1, 7):
        with pytest.raises(ValueError, match=rf"weights, 4; got scores of {classes} classes"):
            loss(torch.zeros(2, classes), torch.zeros(2, classes))


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "NLLLoss", "MultiLabelSoftMarginLoss"])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.tensor([1.0, 0.0, 2.0]), "positive and finite.*got 0 at class 1.*entropy"),
        (torch.tensor([1.0, 1.0, -2.0]), "positive and finite.*got -2 at class 2.*entropy"),
        (torch.tensor([float("nan"), 1.0]), "positive and finite.*got nan at class 0.*entropy"),
        (torch.ones(2, 3), r"number per class; got a tensor of shape \(2, 3\).*Leave out"),
        (torch.ones(0), r"number per class; got a tensor of shape \(0,\).*Leave out"),
    ],
    ids=["zero", "negative", "nan", "two axes", "empty"],
)
def test_weights_that_are_none_are_refused(name: str, weight: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}'s weight is.*{message}"):
        from_torch(getattr(nn, name)(weight=weight))


REFUSED = {
    "one weight for all classes": (
        nn.CrossEntropyLoss(weight=torch.tensor(2.0)),
        r"one number per class; got a tensor of shape \(\)",
    ),
    "a weight per sample": (
        nn.BCEWithLogitsLoss(weight=torch.ones(8, 1)),
        r"one number, or one number per class; got a tensor of shape \(8, 1\)",
    ),
    "no positive weight": (
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor(0.0)),
        "pos_weight is positive and finite",
    ),
    "two numbers of classes": (
        nn.BCEWithLogitsLoss(weight=torch.ones(3), pos_weight=torch.ones(4)),
        "for one number of classes; got 3 and 4. Give both",
    ),
    "labels smoothed away": (nn.CrossEntropyLoss(label_smoothing=1.0), "less than 1.*got 1"),
    "weighted labels smoothed away": (
        nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=1.0),
        "less than 1.*got 1",
    ),
    "no margin": (nn.MultiMarginLoss(p=2, margin=0.0), "positive number.*p=2, margin=0.*entropy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_without_meaning_are_refused(name: str) -> None:
    module, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        from_torch(module)


UNSUITABLE = {
    "hinge": (
        nn.MultiMarginLoss(),
        r'MultiMarginLoss\(p=1, margin=1\).*piecewise linear.*no gradient.*method="entropy".*p=2',
    ),
    "weighted hinge": (
        functools.partial(F.multi_margin_loss, weight=WEIGHT),
        r"MultiMarginLoss\(weight of 4 classes, p=1.*piecewise linear",
    ),
    "squared hinge, many classes": (
        nn.MultiMarginLoss(p=2, weight=torch.linspace(0.5, 2, 400)),
        "so many classes.*ill-conditioned",
    ),
    "probabilities": (nn.BCELoss(), "takes probabilities.*wants a loss of logits.*BCEWithLogits"),
    "function of probabilities": (F.binary_cross_entropy, "BCELoss.*takes probabilities"),
    "log-probabilities": (nn.KLDivLoss, "takes log-probabilities.*CrossEntropyLoss"),
    "signs": (nn.SoftMarginLoss(), "labels -1 and .1.*BCEWithLogitsLoss"),
    "absolute": (nn.L1Loss(), "not affine in the label.*entropy"),
    "huber": (nn.HuberLoss(), "linear far from it.*MSELoss"),
    "huber that is square on every probe": (nn.HuberLoss(delta=100.0), "linear far from it"),
    "smooth absolute": (F.smooth_l1_loss, "SmoothL1Loss.*linear far from it"),
    "hinge of distances": (nn.HingeEmbeddingLoss(), "HingeEmbeddingLoss.*not affine.*entropy"),
    "lists of classes": (nn.MultiLabelMarginLoss(), "lists of classes.*entropy"),
    "rates": (nn.PoissonNLLLoss(log_input=False), "positive rates.*logarithm"),
    "variances": (nn.GaussianNLLLoss(), "takes input, target, var rather than scores and labels"),
    "triplets": (nn.TripletMarginLoss(), "takes anchor, positive, negative rather"),
    "pairs": (nn.CosineEmbeddingLoss(), "takes input1, input2, target rather"),
    "sequences": (nn.CTCLoss(), "takes log_probs, targets, input_lengths"),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_losses_without_a_use_at_test_time_are_refused_with_the_reason(name: str) -> None:
    given, message = UNSUITABLE[name]
    with pytest.raises(UnsuitableLossError, match=message):
        from_torch(given)


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyLoss"), reason="this torch has none")
def test_a_loss_that_holds_the_last_layer_is_refused() -> None:
    with pytest.raises(UnsuitableLossError, match=r"returns features.*CrossEntropyLoss\(\)"):
        from_torch(nn.LinearCrossEntropyLoss(10, 10))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (functools.partial(F.cross_entropy, WEIGHT), "keyword arguments only; got 1 positional"),
        (functools.partial(F.cross_entropy, target=WEIGHT), "cannot be made with target"),
        (functools.partial(F.mse_loss, weight=WEIGHT), "MSELoss cannot be made with weight"),
        (functools.partial(nn.MSELoss, margin=2), "MSELoss cannot be made with margin"),
    ],
    ids=["positional", "target", "weighted squares", "unknown"],
)
def test_partials_that_make_no_loss_are_a_type_error(given: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        from_torch(given)
