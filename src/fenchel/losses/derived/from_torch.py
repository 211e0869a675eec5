"""The losses that people train with in torch, as losses of this library."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from fenchel.losses.base import Loss
from fenchel.losses.binary_cross_entropy import BinaryCrossEntropy
from fenchel.losses.cross_entropy import CrossEntropy
from fenchel.losses.derived.derive import derive
from fenchel.losses.derived.implicit import SingularLossError
from fenchel.losses.derived.reading import LossFunction, UnsuitableLossError
from fenchel.losses.derived.torch_functions import (
    MultiMargin,
    WeightedBinaryCrossEntropy,
    WeightedCrossEntropy,
)
from fenchel.losses.label_smoothing import LabelSmoothing
from fenchel.losses.labels import LabelSpace, YesOrNo
from fenchel.losses.squared import SquaredLoss

ADVICE = 'Adapt with method="entropy", which needs no training loss, or with another objective=.'

FUNCTIONS: dict[Callable[..., Tensor], type[nn.Module]] = {
    F.binary_cross_entropy: nn.BCELoss,
    F.binary_cross_entropy_with_logits: nn.BCEWithLogitsLoss,
    F.cross_entropy: nn.CrossEntropyLoss,
    F.huber_loss: nn.HuberLoss,
    F.kl_div: nn.KLDivLoss,
    F.l1_loss: nn.L1Loss,
    F.mse_loss: nn.MSELoss,
    F.multi_margin_loss: nn.MultiMarginLoss,
    F.multilabel_soft_margin_loss: nn.MultiLabelSoftMarginLoss,
    F.nll_loss: nn.NLLLoss,
    F.poisson_nll_loss: nn.PoissonNLLLoss,
    F.smooth_l1_loss: nn.SmoothL1Loss,
    F.soft_margin_loss: nn.SoftMarginLoss,
}
"""The module of a function; both take the same keyword arguments."""

_FAR_OFF = (
    "it is a square near the label and linear far from it, so its gradient is not affine in the label "
    "and no label follows from the scores. torch.nn.MSELoss() has one, if you can train with it. "
)
REFUSED = {
    "BCELoss": (
        "it takes probabilities, and trained_with= wants a loss of logits. Let the model return what it "
        "computes before its sigmoid and pass torch.nn.BCEWithLogitsLoss(): that is the same loss."
    ),
    "HuberLoss": _FAR_OFF + ADVICE,
    "SmoothL1Loss": _FAR_OFF + ADVICE,
    "LinearCrossEntropyLoss": (
        "it holds the last layer of the model, so the model returns features rather than logits. Put its "
        "linear layer behind the model and pass torch.nn.CrossEntropyLoss()."
    ),
}
"""What is never derived, by the name of the class: some versions of torch lack some of them."""
REASONS = {
    "KLDivLoss": (
        "it takes log-probabilities, and trained_with= wants a loss of logits. For a model that ends in "
        "log_softmax pass torch.nn.CrossEntropyLoss(): it differs by a term in the labels alone."
    ),
    "L1Loss": (
        "it is linear on either side of the label, so its gradient is not affine in the label. "
        + ADVICE
    ),
    "MultiLabelMarginLoss": "its labels are lists of classes, which cannot be soft. " + ADVICE,
    "PoissonNLLLoss": (
        "with log_input=False it takes positive rates, and trained_with= wants a loss of scores of "
        "either sign. Let the model return the logarithm of its rates and pass PoissonNLLLoss()."
    ),
    "SoftMarginLoss": (
        "it is made for labels -1 and +1, between which it is not linear. Pass "
        "torch.nn.BCEWithLogitsLoss(): that is the same loss for labels 0 and 1."
    ),
}
"""Why `derive` refuses a module, in the words of those who train with it."""


def from_torch(loss: object) -> Loss | None:
    """The loss of this library that a loss of torch computes; None if it is not a loss of torch.

    Takes a loss of torch.nn (an instance, or a class for its default instance), a loss function of
    torch.nn.functional, and functools.partial of either with keyword arguments. `reduction` and
    `ignore_index` do not matter: they change no sample's loss. Nor does a constant factor: MSELoss and
    SquaredLoss differ by 2/C, BCEWithLogitsLoss and BinaryCrossEntropy by 1/C, as torch takes means
    over the C scores. What has no test-time objective is refused with the reason.

    >>> import torch
    >>> from_torch(nn.CrossEntropyLoss(label_smoothing=0.1))
    LabelSmoothing(smoothing=0.1)
    >>> from_torch(functools.partial(F.cross_entropy, weight=torch.tensor([1.0, 2.0, 2.0])))
    DerivedLoss(CrossEntropyLoss(weight of 3 classes))
    """
    module = _as_module(loss)
    if module is None:
        return None
    kind = _torch_class(type(module))
    return _BUILDERS.get(kind, _from_module)(module)


def _as_module(loss: object) -> nn.Module | None:
    """The module of torch that `loss` stands for, if it stands for any."""
    keywords: dict[str, Any] = {}
    positional = 0
    if isinstance(loss, functools.partial):
        keywords, positional = loss.keywords, len(loss.args)
        loss = loss.func
    if inspect.isfunction(loss):
        loss = FUNCTIONS.get(loss)
    if isinstance(loss, nn.Module):
        return (
            loss if _torch_class(type(loss)) is not None and not (keywords or positional) else None
        )
    if not isinstance(loss, type) or _torch_class(loss) is None:
        return None
    if positional:
        raise TypeError(
            f"functools.partial of torch's {loss.__name__} or of its function may fix keyword arguments "
            f"only; got {positional} positional. Write partial(F.cross_entropy, label_smoothing=0.1), say."
        )
    given = {key: value for key, value in keywords.items() if value is not None}
    try:
        module: nn.Module = loss(**given)
    except TypeError as error:
        raise TypeError(
            f"torch.nn.{loss.__name__} cannot be made with {', '.join(given) or 'no arguments'}: {error}. "
            "Pass an instance of it, or fenchel.derive(your_loss)."
        ) from error
    return module


def _torch_class(cls: type) -> type | None:
    """The loss of torch that a class computes: itself, or the parent whose forward it keeps."""
    for parent in cls.__mro__:
        if "forward" in vars(parent):
            return parent if parent.__module__ == nn.modules.loss.__name__ else None
    return None


def _cross_entropy(module: Any) -> Loss:
    """CrossEntropyLoss; and NLLLoss, since log_softmax leaves log-probabilities as they are."""
    smoothing = float(getattr(module, "label_smoothing", 0.0))
    if not 0 <= smoothing < 1:
        raise ValueError(
            f"label_smoothing is at least 0 and less than 1, where the labels no longer matter; got "
            f"{smoothing:g}. Pass what the model was trained with. {ADVICE}"
        )
    weight = _weight(module, "weight", "one number per class", axes=(1,))
    if weight is None:
        return LabelSmoothing(smoothing=smoothing) if smoothing else CrossEntropy()
    settings = [f"label_smoothing={smoothing:g}"] if smoothing else []
    title = _title(module, *settings, weight=weight)
    return _derived(WeightedCrossEntropy(weight, smoothing), title, classes=len(weight))


def _binary_cross_entropy(module: Any) -> Loss:
    """BCEWithLogitsLoss; and MultiLabelSoftMarginLoss, which has no pos_weight."""
    rule = "one number, or one number per class"
    weights = {
        name: _weight(module, name, rule, axes=(0, 1))
        for name in ("weight", "pos_weight")
        if getattr(module, name, None) is not None
    }
    if not weights:
        return BinaryCrossEntropy()
    counts = {len(w) for w in weights.values() if w is not None and w.numel() > 1}
    if len(counts) > 1:
        raise ValueError(
            f"weight and pos_weight of {type(module).__name__} are for one number of classes; got "
            f"{' and '.join(map(str, sorted(counts)))}. Give both one number per class."
        )
    return _derived(
        WeightedBinaryCrossEntropy(weights.get("weight"), weights.get("pos_weight")),
        _title(module, **weights),
        classes=counts.pop() if counts else None,
        labels=YesOrNo(),
    )


def _squared(module: nn.Module) -> Loss:
    """MSELoss, up to the constant factor 2/C."""
    return SquaredLoss()


def _multi_margin(module: Any) -> Loss:
    weight = _weight(module, "weight", "one number per class", axes=(1,))
    title = _title(module, f"p={module.p}", f"margin={module.margin:g}", weight=weight)
    if not module.margin > 0:
        raise ValueError(
            f"a margin is a positive number: without one, more than one label makes a prediction "
            f"stationary; got {title}. {ADVICE}"
        )
    if module.p == 1:
        reason = (
            "it is piecewise linear in the scores, so the objective that follows from it has no gradient "
            f"and would adapt nothing, silently. {ADVICE} With p=2 the loss has an objective."
        )
    else:
        reason = (
            f"with so many classes the equations of its label are too ill-conditioned. {ADVICE}"
        )
    function = MultiMargin(module.p, module.margin, weight)
    return _derived(function, title, reason, classes=None if weight is None else len(weight))


def _from_module(module: nn.Module) -> Loss:
    """Any other loss of torch.nn: the module itself is the function, if it is one of two tensors."""
    name = type(module).__name__
    kind = getattr(_torch_class(type(module)), "__name__", name)
    reason = REFUSED.get(kind)
    needed = [
        parameter.name
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.default is parameter.empty
    ]
    if reason is None and len(needed) != 2:
        reason = f"it takes {', '.join(needed)} rather than scores and labels. {ADVICE}"
    if reason is not None:
        raise _refusal(name, reason)
    module = copy.copy(module)
    module.reduction = "none"  # type: ignore[assignment]
    return _derived(module, name, REASONS.get(kind))


_BUILDERS: dict[type | None, Callable[[Any], Loss]] = {
    nn.BCEWithLogitsLoss: _binary_cross_entropy,
    nn.CrossEntropyLoss: _cross_entropy,
    nn.MSELoss: _squared,
    nn.MultiLabelSoftMarginLoss: _binary_cross_entropy,
    nn.MultiMarginLoss: _multi_margin,
    nn.NLLLoss: _cross_entropy,
}


def _derived(
    function: LossFunction,
    title: str,
    reason: str | None = None,
    *,
    classes: int | None = None,
    labels: LabelSpace | None = None,
) -> Loss:
    """Derived, or refused in the words of `reason`; without any, in those of `derive`."""
    try:
        return derive(function, classes=classes, labels=labels, name=title)
    except (UnsuitableLossError, SingularLossError) as error:
        raise _refusal(title, reason or f"{error} {ADVICE}") from error


def _refusal(title: str, reason: str) -> UnsuitableLossError:
    return UnsuitableLossError(f"torch's {title} cannot be adapted with: {reason}")


def _weight(module: nn.Module, name: str, rule: str, *, axes: tuple[int, ...]) -> Tensor | None:
    """A weight of the module with this many axes, all of it positive; a copy, or None."""
    weight: Tensor | None = getattr(module, name)
    if weight is None:
        return None
    who = f"{type(module).__name__}'s {name}"
    if weight.ndim not in axes or not weight.numel():
        raise ValueError(
            f"{who} is {rule}; got a tensor of shape {tuple(weight.shape)}. Leave out "
            "what weights samples: it is no property of the loss."
        )
    wrong = ((weight <= 0) | ~weight.isfinite()).flatten().nonzero()
    if len(wrong):
        first = int(wrong[0])
        value = weight.flatten()[first].item()
        raise ValueError(
            f"{who} is positive and finite: a class without weight takes no part in the loss, and no "
            f"label follows for it; got {value:g} at class {first}. {ADVICE}"
        )
    return weight.detach().clone()


def _title(module: nn.Module, *settings: str, **weights: Tensor | None) -> str:
    """A short title of the loss: CrossEntropyLoss(weight of 3 classes)."""
    parts = [
        f"{name} of {len(weight)} classes" if weight.numel() > 1 else f"{name}={weight.item():g}"
        for name, weight in weights.items()
        if weight is not None
    ]
    return f"{type(module).__name__}({', '.join([*parts, *settings])})"
