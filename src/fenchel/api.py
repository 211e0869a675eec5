"""`fenchel.adapt`: makes an adapter from a model and the loss that the model was trained with."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
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
from fenchel.adapters.core import Core, Protect
from fenchel.adapters.group import Group
from fenchel.adapters.guards import check_model
from fenchel.adapters.harm import OnBatch, OnVerdict
from fenchel.adapters.monitor import THRESHOLDS
from fenchel.adapters.normalization import Statistics, batch_norm_layers
from fenchel.adapters.outputs import Where
from fenchel.adapters.parameters import Selection
from fenchel.losses import Loss, parse
from fenchel.methods.bn_alpha import BatchAlpha
from fenchel.methods.calibrated import Calibration
from fenchel.methods.choosing import Choice, calibration_in
from fenchel.methods.side_by_side import SideBySide
from fenchel.methods.unmoved import BatchStatistics
from fenchel.names import unknown
from fenchel.objectives import Objective

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

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


def adapt(
    model: nn.Module | Checkpoint | str | Path,
    *,
    trained_with: Loss | str | nn.Module | Callable[..., Tensor] | None = None,
    method: str | Method | type[Method] | None = None,
    objective: Objective | str | None = None,
    settings: str | Path | Calibration | None = None,
    optimizer: OptimizerChoice | None = None,
    learning_rate: float | Literal["auto"] | None = None,
    temperature: float | None = None,
    steps: int = 1,
    predict: Literal["after", "before"] | None = None,
    statistics: Statistics | None = None,
    parameters: Selection | None = None,
    episodic: bool = False,
    update_every: int = 1,
    logits: Where | None = None,
    dim: int | None = None,
    features: str | None = None,
    source_images: Tensor | None = None,
    protect: Protect | None = None,
    correct_output: bool | None = None,
    on_batch: OnBatch | None = None,
    on_verdict: OnVerdict | None = None,
    channels_last: bool | None = None,
    winograd: bool = True,
    compile: bool = False,  # noqa: A002
    group: ProcessGroup | Group | None = None,
    seed: int = 0,
    **options: Any,
) -> Adapter:
    """Wrap `model` so that it adapts to every batch it predicts; the model itself is never modified.

    model: any `nn.Module`; or a checkpoint of this library (or its path), which records its loss.
    trained_with: the loss the model was trained with: one of this library, its spec
        (`"poly:epsilon=6"`), or one of torch's (`nn.CrossEntropyLoss(label_smoothing=0.1)`,
        `F.cross_entropy`). Any other function goes through `fenchel.derive`. `"auto"`: what the catalogue
        knows of a public network (`fenchel list checkpoints`), with one line of notice.
    method: `conjugate`, or any other name of `fenchel list methods`; by default `protected`, the conjugate
        objective made safe. With options if you like: `"hard:threshold=0.9"`. Options may be keywords as
        well: `threshold=` for hard, `q=` for robust, `input_range=(0, 1)` for memo. Or your own `Method`.
    objective: instead of a method, an objective of your own to follow. With a method that has an objective
        inside (`eta`, `sar`, ...), that objective or its name: `"conjugate"` of the training loss by
        default, `"entropy"` for the published form.
    settings: what `fenchel.calibrate` found for the model, or its file; or the name of a data set
        (`"cifar10"`, `"imagenet"`) for which the method's authors published their settings. What is given
        explicitly wins. A checkpoint's calibration is found by itself.
    optimizer: `sgd` (momentum 0.9, Nesterov), `adam`, a class of torch.optim, or a callable from
        parameters to a torch.optim optimiser, which then brings its own learning rate.
    learning_rate: the learning rate of the optimiser; 1e-3 by default. `"auto"`: three multiples of it side
        by side, of which the one whose predictions look best answers; three times the passes.
    temperature: the objective is computed on logits / temperature; predictions are not. By default
        the objective's own temperature, which is 1 unless it says otherwise.
    predict: `after` the update on the same batch (a second forward), or `before` it. By default as the
        method prefers: `before` for `protected`, whose steps are small, else `after`.
    statistics: which statistics batch-normalisation layers use: those of the `batch`, those of the
        `source`, running statistics (pass the weight of every batch, in (0, 1)), the source's mixed with the
        batch's (`"mix:0.1"`), or the source's corrected for every sample as NOTE does (`"note:4"`); or
        `auto`: those of the stream in layers whose input has moved, the source's in the others. By default
        `auto` with `protect="auto"`, else what the method was made for, mostly `batch`.
    parameters: which parameters are updated: those of `normalization` layers, `last:1` for those of
        the last stage alone, `but-last:1` for those of the other stages, `all`, names or patterns, or a
        predicate. By default what the method was made for, mostly `normalization`.
    episodic: reset before every batch.
    update_every: update on every k-th batch only; the others are predicted with what was learnt.
    logits: where the logits are in what the model returns: a key, a position, or a function that finds
        them and puts the classes on the last axis.
    dim: the axis of the classes. Outputs of more than two axes need it: 1 for (samples, classes,
        height, width).
    features: the layer that makes the logits, for methods that look at what it is given; by default the
        last linear layer to run.
    source_images: images of the source, without labels, for methods that need them (`eata`).
    protect: `"auto"` keeps adaptation from doing harm, `"watch"` only reports it, `False` is the bare step
        as published. By default `"auto"`, and `False` for a method or an objective that you name.
    correct_output: multiply the predicted probabilities by the class frequencies of the batch where labels
        come in runs; the predictions tell whether they do. By default with `protect="auto"`.
    on_batch: called with the `Report` on every batch; or a detector of drift (an object with `update(float)`
        and `drift_detected`, as those of the library river), which is fed the mean entropy of every batch.
    on_verdict: called with the `HarmWarning` whenever the verdict of the monitor changes.
    channels_last: put images into channels-last memory; by default where a batch is large enough to gain.
    winograd: compute wide 3 x 3 convolutions on a CPU with fewer multiplications, equal but for rounding.
    compile: run the network through torch.compile (its first batch takes a minute or more); by default under
        the statistics of the batch.
    group: the processes of torch.distributed that share every batch, such as `torch.distributed.group.WORLD`.
        All of them make every call, each with its share; the result is that of one process with all of it.

    >>> import fenchel
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> adapted = fenchel.adapt(network, trained_with=fenchel.PolyLoss(epsilon=6.0))
    >>> adapted(torch.randn(32, 4)).shape
    torch.Size([32, 3])
    """
    found = None
    if not isinstance(model, nn.Module):
        network, trained_with, found = _opened(model, trained_with)
    else:
        network = model
    check_model(network)
    loss = as_loss(_catalogued(network) if trained_with == "auto" else trained_with)
    if protect is None:
        protect = "auto" if method is None and objective is None else False
    if protect == "auto" and method is None and objective is None:
        method = "protected"
    calibration = calibration_in(settings)
    if settings is None and found is not None and method == found.method:
        calibration = found
    choice = Choice.of(method, objective, calibration or settings, options)
    chosen = choice.made(loss, temperature, known_input_range(network))
    if learning_rate == "auto":
        chosen, learning_rate = SideBySide(inner=chosen, loss=loss), None
    chosen.check()
    if isinstance(chosen, BatchStatistics | BatchAlpha) and not batch_norm_layers(network):
        name = choice.name or type(chosen).__name__
        warnings.warn(
            f"{type(network).__name__} has no batch-normalisation layers, so method {name!r} predicts with "
            "the source model unchanged.",
            AdaptationWarning,
            stacklevel=2,
        )
    _warn_without_minimum(chosen, network)
    preferred = choice.preferred
    if optimizer is None:
        optimizer = preferred.get("optimizer", "sgd")
    if learning_rate is None and isinstance(optimizer, str | type):
        learning_rate = preferred.get("learning_rate")
    if correct_output is None:
        correct_output = protect == "auto"
    resolved = Settings(
        method=chosen,
        protect=protect,
        loss=loss,
        thresholds=THRESHOLDS if calibration is None else calibration.thresholds,
        correct_output=correct_output,
        on_batch=on_batch,
        on_verdict=on_verdict,
        optimizer=as_optimizer(optimizer, learning_rate),
        statistics=chosen.statistics or _statistics(statistics, preferred, protect, compile),
        parameters=_first(parameters, preferred.get("parameters"), "normalization"),
        steps=steps,
        predict=_first(predict, preferred.get("predict"), "after"),
        episodic=episodic,
        update_every=update_every,
        logits=Scores(logits, dim),
        features=features,
        channels_last=channels_last,
        winograd=winograd,
        compile=compile,
        group=Group.of(group),
        seed=seed,
    )
    return Adapter(network, _with_source_data(network, resolved, source_images))


def _statistics(
    given: Statistics | None, preferred: Mapping[str, Any], protect: Protect, compiled: bool
) -> Statistics:
    """Those that are given, else the method's own, else what the protection wants."""
    if given is not None:
        return given
    found: Statistics = preferred.get("statistics", "auto" if protect == "auto" else "batch")
    return "batch" if compiled and found == "auto" else found  # the compiler does not see its hooks


def _first(*values: Any) -> Any:
    """The first value that is given."""
    return next(value for value in values if value is not None)


def _with_source_data(network: nn.Module, settings: Settings, images: Tensor | None) -> Settings:
    """The settings with what the method learns from images of the source, if it needs any."""
    method = settings.method
    if method.cost is not None and method.cost.needs_source_data:
        core = Core.of(network, settings)
        method = method.prepared(partial(core.step.passes, core.initial_state()), images)
        return dataclasses.replace(settings, method=method)
    if images is not None:
        raise TypeError(
            f"source_images are for methods that need source data; {type(method).__name__} needs none. "
            "Leave them out."
        )
    return settings


def _opened(
    model: Checkpoint | str | Path, trained_with: Any
) -> tuple[nn.Module, Any, Calibration | None]:
    """The network of a checkpoint, the loss it was trained with unless another one is given, and the
    calibration that lies beside its file."""
    from fenchel.models import Checkpoint, load_checkpoint  # not needed for a network at hand

    if isinstance(model, str | Path):
        model = load_checkpoint(model)
    if not isinstance(model, Checkpoint):
        return model, trained_with, None  # refused as what it is
    if trained_with in (None, "auto"):
        trained_with = model.loss_spec or trained_with
        logger.info("trained with %s, says the checkpoint", trained_with)
    beside = None if model.path is None else Calibration.beside(model.path)
    found = Calibration.load(beside) if beside is not None and beside.is_file() else None
    return model.model, trained_with, found


def _catalogued(model: nn.Module) -> str:
    """The loss that trained a public network, which is told in one line."""
    from fenchel.models.catalogue import loss_behind  # not needed where the loss is told

    known = loss_behind(model)
    logger.warning("%s", known.notice)
    return known.loss


def as_loss(trained_with: object) -> Loss | None:
    """The loss that `trained_with=` stands for; None for None."""
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


def known_input_range(model: nn.Module) -> tuple[float, float] | None:
    """The range of the pixels, for models that normalise their input themselves; else None."""
    known = getattr(getattr(model, "preprocessing", None), "input_range", None)
    return None if known is None else tuple(known)


def _warn_without_minimum(method: Method, model: nn.Module) -> None:
    """Warn if the objective has no lower bound and the scores of the network have no bound either."""
    if method.has_minimum:
        return
    leaves = [module for module in model.modules() if next(module.children(), None) is None]
    if leaves and isinstance(leaves[-1], _BOUNDED):
        return
    objective = getattr(method, "objective", method)
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
