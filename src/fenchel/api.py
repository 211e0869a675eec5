"""`fenchel.adapt`: makes an adapter from a model and the loss that the model was trained with."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn

from fenchel.adapters import (
    SGD,
    Adam,
    AdaptationWarning,
    Adapter,
    Method,
    Optimizer,
    Scores,
    Settings,
    TorchOptimizer,
    UnboundedObjectiveWarning,
)
from fenchel.adapters.guards import check_model
from fenchel.adapters.normalization import Statistics, batch_norm_layers
from fenchel.adapters.outputs import Where
from fenchel.adapters.parameters import Selection
from fenchel.losses import Loss, parse
from fenchel.methods import Descent, made_method
from fenchel.methods.unmoved import BatchStatistics
from fenchel.names import parse_spec, unknown
from fenchel.objectives import Objective

if TYPE_CHECKING:
    from fenchel.models import Checkpoint

logger = logging.getLogger("fenchel")

OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam}
LEARNING_RATE = 1e-3
"""The learning rate of the named optimisers, unless another one is given."""

OptimizerChoice = str | Optimizer | Callable[[Iterable[Tensor]], torch.optim.Optimizer]

_BOUNDED = (
    nn.Softmax,
    nn.LogSoftmax,
    nn.Sigmoid,
    nn.Tanh,
    nn.Hardtanh,
    nn.Hardsigmoid,
    nn.Softsign,
)
"""Last layers whose outputs are bounded."""
_OTHER_NAMES = {
    "lr": "learning_rate",
    "loss": "trained_with",
    "T": "temperature",
    "rate": "learning_rate",
}
"""Names that other libraries use for an argument of `adapt`, and the name of that argument."""


def adapt(
    model: nn.Module | Checkpoint | str | Path,
    *,
    trained_with: Loss | str | nn.Module | Callable[..., Tensor] | None = None,
    method: str | Method | type[Method] | None = None,
    objective: Objective | None = None,
    optimizer: OptimizerChoice = "sgd",
    learning_rate: float | None = None,
    temperature: float | None = None,
    steps: int = 1,
    predict: Literal["after", "before"] = "after",
    statistics: Statistics = "batch",
    parameters: Selection = "normalization",
    episodic: bool = False,
    update_every: int = 1,
    logits: Where | None = None,
    dim: int | None = None,
    features: str | None = None,
    channels_last: bool | None = None,
    winograd: bool = True,
    compile: bool = False,  # noqa: A002
    seed: int = 0,
    **options: Any,
) -> Adapter:
    """Wrap `model` so that it adapts to every batch it predicts; the model itself is never modified.

    model: any `nn.Module`; or a checkpoint of this library (or its path), which records its loss.
    trained_with: the loss the model was trained with: one of this library, its spec
        (`"poly:epsilon=6"`), or one of torch's (`nn.CrossEntropyLoss(label_smoothing=0.1)`,
        `F.cross_entropy`). Any other function goes through `fenchel.derive`.
    method: `conjugate` (the default), or one of the baselines `source`, `bn`, `entropy`, `hard`, `soft`,
        `robust`, `memo`, with options if you like: `"hard:threshold=0.9"`. Options may be keywords as
        well: `threshold=` for hard, `q=` for robust, `input_range=(0, 1)` for memo. Or a `Method` of your
        own; or `objective=` instead.
    optimizer: `sgd` (momentum 0.9, Nesterov), `adam`, a class of torch.optim, or a callable from
        parameters to a torch.optim optimiser, which then brings its own learning rate.
    learning_rate: the learning rate of the optimiser; 1e-3 by default.
    temperature: the objective is computed on logits / temperature; predictions are not. By default
        the objective's own temperature, which is 1 unless it says otherwise.
    predict: `after` the update on the same batch (a second forward), or `before` it.
    statistics: which statistics batch-normalisation layers use: those of the `batch`, those of the
        `source`, or running statistics. For the latter pass the weight of every batch, in (0, 1).
    parameters: which parameters are updated: those of `normalization` layers, `last:1` for those of
        the last stage alone, `all`, names or patterns, or a predicate.
    episodic: reset before every batch.
    update_every: update on every k-th batch only; the others are predicted with what was learnt.
    logits: where the logits are in what the model returns: a key, a position, or a function that finds
        them and puts the classes on the last axis.
    dim: the axis of the classes. Outputs of more than two axes need it: 1 for (samples, classes,
        height, width).
    features: the layer that makes the logits, for methods that look at what it is given; by default the
        last linear layer to run.
    channels_last: put images into channels-last memory; by default where a batch is large enough to gain.
    winograd: compute wide 3 x 3 convolutions on a CPU with fewer multiplications, equal but for rounding.
    compile: run the network through torch.compile (its first batch takes a minute or more).

    >>> import fenchel
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> adapted = fenchel.adapt(network, trained_with=fenchel.PolyLoss(epsilon=6.0))
    >>> adapted(torch.randn(32, 4)).shape
    torch.Size([32, 3])
    """
    if not isinstance(model, nn.Module):
        network, trained_with = _opened(model, trained_with)
    else:
        network = model
    check_model(network)
    loss = _as_loss(trained_with)
    chosen = _as_method(method, objective, loss, temperature, _known_input_range(network), options)
    chosen.check()
    if isinstance(chosen, BatchStatistics) and not batch_norm_layers(network):
        warnings.warn(
            f"{type(network).__name__} has no batch-normalisation layers, so method 'bn' predicts with the "
            "source model unchanged.",
            AdaptationWarning,
            stacklevel=2,
        )
    _warn_without_minimum(chosen, network)
    return Adapter(
        network,
        Settings(
            method=chosen,
            optimizer=as_optimizer(optimizer, learning_rate),
            statistics=chosen.statistics or statistics,
            parameters=parameters,
            steps=steps,
            predict=predict,
            episodic=episodic,
            update_every=update_every,
            logits=Scores(logits, dim),
            features=features,
            channels_last=channels_last,
            winograd=winograd,
            compile=compile,
            seed=seed,
        ),
    )


def _opened(model: Checkpoint | str | Path, trained_with: Any) -> tuple[nn.Module, Any]:
    """The network of a checkpoint, and the loss it was trained with unless another one is given."""
    from fenchel.models import Checkpoint, load_checkpoint  # not needed for a network at hand

    if isinstance(model, str | Path):
        model = load_checkpoint(model)
    if not isinstance(model, Checkpoint):
        return model, trained_with  # refused as what it is
    if trained_with is None:
        trained_with = model.loss_spec or None
        logger.info("trained with %s, says the checkpoint", trained_with)
    return model.model, trained_with


def _as_loss(trained_with: object) -> Loss | None:
    if trained_with is None or isinstance(trained_with, Loss):
        return trained_with
    if isinstance(trained_with, str):
        return parse(trained_with)
    from fenchel.losses.derived.from_torch import from_torch  # not needed for losses of ours

    if (found := from_torch(trained_with)) is not None:
        return found
    hint = (
        " Wrap the function: trained_with=fenchel.derive(your_loss)."
        if callable(trained_with)
        else ""
    )
    raise TypeError(
        "trained_with is a fenchel loss or its spec, or a loss of torch; got "
        f"{type(trained_with).__name__}.{hint}"
    )


def _known_input_range(model: nn.Module) -> tuple[float, float] | None:
    """The range of the pixels, for models that normalise their input themselves; else None."""
    known = getattr(getattr(model, "preprocessing", None), "input_range", None)
    return None if known is None else tuple(known)


def _as_method(
    method: object,
    objective: Objective | None,
    loss: Loss | None,
    temperature: float | None,
    input_range: tuple[float, float] | None,
    options: dict[str, Any],
) -> Method:
    """The method that the arguments of `adapt` name."""
    _require_no_other_name(options)
    if objective is not None:
        return Descent(objective=_own(objective, method, temperature, options))
    if isinstance(method, Method):
        if options or temperature is not None:
            given = [*options, *(["temperature"] if temperature is not None else [])]
            raise TypeError(
                f"{type(method).__name__} brings its own options; got {', '.join(given)} as well. Set them "
                "on the method itself."
            )
        return method
    if isinstance(method, type) and issubclass(method, Method):
        return method.made_for(loss, temperature=temperature, **options)
    name = "conjugate" if method is None else method
    if not isinstance(name, str):
        hint = " Pass it as objective=." if isinstance(name, Objective) else ""
        raise TypeError(
            "method is a name such as 'conjugate', or a fenchel.Method; got "
            f"{type(name).__name__}.{hint}"
        )
    name, written = parse_spec(name)
    if twice := sorted(written.keys() & options.keys()):
        raise TypeError(f"{', '.join(twice)} is given twice, in method= and as a keyword.")
    return made_method(
        name,
        loss,
        {**written, **options},
        temperature=temperature,
        input_range=input_range,
    )


def _require_no_other_name(options: dict[str, Any]) -> None:
    """Refuse an argument named as in another library, and give the name that it has here."""
    for name, ours in _OTHER_NAMES.items():
        if name in options:
            raise TypeError(f"adapt does not know {name}=. Did you mean {ours}=?")


def _own(
    objective: Objective, method: object, temperature: float | None, options: dict[str, Any]
) -> Objective:
    """The user's own objective, at the given temperature."""
    if method is not None:
        raise ValueError(f"pass method= or objective=, not both; got method={method!r} as well.")
    if options:
        raise TypeError(
            f"adapt does not know {', '.join(options)}; set it on the objective itself."
        )
    if not isinstance(objective, Objective):
        raise TypeError(
            f"objective must be a fenchel Objective; got {type(objective).__name__}. Derive one from your "
            "training loss with Conjugate(fenchel.derive(loss)), or subclass fenchel.Objective."
        )
    if temperature is None:
        return objective
    return dataclasses.replace(objective, temperature=temperature)


def _warn_without_minimum(method: Method, model: nn.Module) -> None:
    """Warn if the objective has no lower bound and the scores of the network have no bound either."""
    objective = getattr(method, "objective", None)
    if objective is None or objective.is_bounded:
        return
    leaves = [module for module in model.modules() if next(module.children(), None) is None]
    if leaves and isinstance(leaves[-1], _BOUNDED):
        return
    warnings.warn(
        f"the objective {objective!r} has no minimum, and the scores of {type(model).__name__} have no "
        "bound: over a long stream they grow until one class takes all predictions. Use optimizer='adam' "
        "with a small learning_rate, reset now and then, or take method='entropy'.",
        UnboundedObjectiveWarning,
        stacklevel=3,
    )


def as_optimizer(optimizer: OptimizerChoice, learning_rate: float | None) -> Optimizer:
    """The optimiser that `adapt` makes of its two arguments."""
    rate = LEARNING_RATE if learning_rate is None else learning_rate
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise unknown("optimizer", optimizer, OPTIMIZERS)
        return OPTIMIZERS[optimizer](learning_rate=rate)
    if isinstance(optimizer, type):
        if issubclass(optimizer, SGD | Adam):
            return optimizer(learning_rate=rate)
        factory = cast(Callable[..., torch.optim.Optimizer], optimizer)
        return TorchOptimizer(factory=partial(factory, lr=rate))
    if learning_rate is not None and (isinstance(optimizer, Optimizer) or callable(optimizer)):
        raise ValueError(
            f"a ready optimizer brings its own learning rate; got learning_rate={learning_rate!r} as well. "
            "Set the rate on the optimizer, or pass its name or class."
        )
    if isinstance(optimizer, Optimizer):
        return optimizer
    if not callable(optimizer):
        raise TypeError(
            "optimizer must be 'sgd', 'adam', a class of torch.optim, or a callable that makes one from "
            f"parameters; got {type(optimizer).__name__}. For example "
            "optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)."
        )
    return TorchOptimizer(factory=optimizer)
