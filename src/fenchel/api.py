"""`fenchel.adapt`: what joins a model, the loss it was trained with, and an adapter."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fenchel.adapters import (
    METHODS,
    SGD,
    Adam,
    AdaptationWarning,
    Adapter,
    Optimizer,
    Settings,
    TorchOptimizer,
)
from fenchel.adapters.guards import check_model, pick_logits
from fenchel.adapters.normalization import Statistics, batch_norm_layers
from fenchel.adapters.parameters import Selection
from fenchel.losses import Loss, parse
from fenchel.models import Checkpoint, load_checkpoint
from fenchel.names import unknown
from fenchel.objectives import Conjugate, MarginalEntropy, Objective

logger = logging.getLogger("fenchel")

OPTIMIZERS: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam}

OptimizerChoice = str | Optimizer | Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def adapt(
    model: nn.Module | Checkpoint | str | Path,
    *,
    trained_with: Loss | str | None = None,
    method: str | None = None,
    objective: Objective | None = None,
    optimizer: OptimizerChoice = "sgd",
    learning_rate: float = 1e-3,
    temperature: float = 1.0,
    steps: int = 1,
    predict: Literal["after", "before"] = "after",
    statistics: Statistics = "batch",
    parameters: Selection = "normalization",
    episodic: bool = False,
    update_every: int = 1,
    logits: Callable[[Any], Tensor] | None = None,
    channels_last: bool | None = None,
    winograd: bool = True,
    compile: bool = False,  # noqa: A002
    seed: int = 0,
    **options: Any,
) -> Adapter:
    """Wrap `model` so that it adapts to every batch it predicts; the model itself is never modified.

    model: any `nn.Module`; or a checkpoint of this library (or its path), which knows its loss.
    trained_with: the loss the model was trained with, as an object or a spec (`"poly:epsilon=6"`).
    method: `conjugate` (the default), or one of the baselines `source`, `bn`, `entropy`, `hard`, `soft`,
        `robust`, `memo`; `objective=` instead for one of your own. Further keywords go to the
        method's objective: `threshold=` for hard, `q=` for robust, `input_range=(0, 1)` for memo.
    optimizer: `sgd` (momentum 0.9, Nesterov), `adam`, a class of torch.optim, or a callable from
        parameters to a torch.optim optimiser, which then brings its own learning rate.
    temperature: the objective sees logits / temperature; predictions do not.
    predict: `after` the update on the same batch (a second forward), or `before` it.
    statistics: of batch-normalisation layers: the `batch`'s, the `source`'s, or the weight in (0, 1)
        with which every batch enters the running statistics.
    parameters: which move: `normalization` layers, `last:1` for those of the last stage alone, `all`,
        names or patterns, or a predicate.
    episodic: reset before every batch.
    update_every: update on every k-th batch only; the others are predicted with what was learnt.
    logits: picks the logits, classes on the last axis, out of what the model returns.
    channels_last: images in channels-last memory; by default where a batch is large enough to gain.
    winograd: wide 3 x 3 convolutions on a CPU with fewer multiplications, equal but for rounding.
    compile: run the network through torch.compile (its first batch takes a minute or more).

    >>> import fenchel
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> adapted = fenchel.adapt(network, trained_with=fenchel.PolyLoss(epsilon=6.0))
    >>> adapted(torch.randn(32, 4)).shape
    torch.Size([32, 3])
    """
    if isinstance(model, str | Path):
        model = load_checkpoint(model)
    if isinstance(model, Checkpoint):
        if trained_with is None:
            trained_with = model.loss_spec
            logger.info("trained with %s, says the checkpoint", trained_with)
        model = model.model
    check_model(model)
    loss = _as_loss(trained_with)
    source_statistics = False
    if objective is None:
        if method == "memo" and not options.keys() & {"input_range", "mean"}:
            options |= _known_input_range(model)
        objective, source_statistics = _named(method or "conjugate", loss, temperature, options)
    else:
        objective = _own(objective, method, temperature, options)
    if objective is None and not source_statistics and not batch_norm_layers(model):
        warnings.warn(
            f"{type(model).__name__} has no batch-normalisation layers, so method 'bn' predicts with the "
            "source model unchanged.",
            AdaptationWarning,
            stacklevel=2,
        )
    if isinstance(objective, MarginalEntropy) and not objective.knows_range:
        raise objective.unknown_range()
    if isinstance(objective, Conjugate):
        _require_gradient(objective.loss)
    return Adapter(
        model,
        Settings(
            objective=objective,
            optimizer=_as_optimizer(optimizer, learning_rate),
            statistics="source" if source_statistics else statistics,
            parameters=parameters,
            steps=steps,
            predict=predict,
            episodic=episodic,
            update_every=update_every,
            logits=logits or pick_logits,
            channels_last=channels_last,
            winograd=winograd,
            compile=compile,
            seed=seed,
        ),
    )


def _as_loss(trained_with: Loss | str | None) -> Loss | None:
    if trained_with is None or isinstance(trained_with, Loss):
        return trained_with
    if isinstance(trained_with, str):
        return parse(trained_with)
    hint = (
        " Wrap the function: trained_with=fenchel.derive(your_loss)."
        if callable(trained_with)
        else ""
    )
    raise TypeError(
        f"trained_with is a fenchel loss or its spec; got {type(trained_with).__name__}.{hint}"
    )


def _known_input_range(model: nn.Module) -> dict[str, Any]:
    """Models that normalise their input themselves say in which range they take it."""
    input_range = getattr(getattr(model, "preprocessing", None), "input_range", None)
    return {} if input_range is None else {"input_range": tuple(input_range)}


def _named(
    name: str, loss: Loss | None, temperature: float, options: dict[str, Any]
) -> tuple[Objective | None, bool]:
    """The objective of a named method, and whether it insists on the source's statistics."""
    method = METHODS[name]
    if method.needs_loss and loss is None:
        raise ValueError(
            f"method {name!r} is derived from the loss the model was trained with, which was not given. Pass "
            "trained_with=, for example trained_with=fenchel.CrossEntropy()."
        )
    if name in ("source", "bn"):
        if options:
            raise ValueError(f"method {name!r} takes no options; got {', '.join(options)}.")
        return None, method.source_statistics
    try:
        return method.build(loss, temperature=temperature, **options), method.source_statistics
    except TypeError as error:
        raise TypeError(f"method {name!r} does not take these options: {error}.") from error


def _own(
    objective: Objective, method: str | None, temperature: float, options: dict[str, Any]
) -> Objective:
    """The user's own objective, at the temperature asked for."""
    if method is not None:
        raise ValueError(f"pass method= or objective=, not both; got method={method!r} as well.")
    if options:
        raise TypeError(
            f"adapt does not know {', '.join(options)}; set it on the objective itself."
        )
    if not isinstance(objective, Objective):
        raise TypeError(
            f"objective must be a fenchel Objective; got {type(objective).__name__}. Derive one from your "
            "training loss with Conjugate(fenchel.derive(loss)), or subclass fenchel.objectives.Objective."
        )
    return (
        objective if temperature == 1 else dataclasses.replace(objective, temperature=temperature)
    )


def _as_optimizer(optimizer: OptimizerChoice, learning_rate: float) -> Optimizer:
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise unknown("optimizer", optimizer, OPTIMIZERS)
        return OPTIMIZERS[optimizer](learning_rate=learning_rate)
    if isinstance(optimizer, type):
        return TorchOptimizer(factory=partial(optimizer, lr=learning_rate))
    if not callable(optimizer):
        raise TypeError(
            "optimizer must be 'sgd', 'adam', a class of torch.optim, or a callable that makes one from "
            f"parameters; got {type(optimizer).__name__}. For example "
            "optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)."
        )
    return TorchOptimizer(factory=optimizer)


def _require_gradient(loss: Loss) -> None:
    """Refuse a loss whose conjugate objective is constant: it would adapt nothing, silently."""
    with torch.inference_mode(False), torch.enable_grad():
        h = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
        try:
            (gradient,) = torch.autograd.grad(loss.conjugate(h).sum(), h, materialize_grads=True)
        except (RuntimeError, ValueError):
            return  # made for another number of classes; derive has judged it there
    if bool((gradient.abs() < 1e-10).all()):
        raise ValueError(
            f"the conjugate objective of {loss!r} has no gradient, so it would adapt nothing. Use another "
            "method, such as method='entropy'."
        )
