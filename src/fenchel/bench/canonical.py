"""One spelling for equal runs: defaults written out, unused settings dropped, equal objectives merged.

A sweep may ask for the same computation in several ways. For a model trained with cross-entropy the
entropy of the softmax, its own probabilities as the label and the conjugate label are one function,
so they are run once; tables still show a row for each name that was asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import nn

from fenchel.adapters import METHODS
from fenchel.adapters.methods import FROM_FILES
from fenchel.api import adapt
from fenchel.losses import BinaryCrossEntropy, CrossEntropy, LabelSmoothing, Loss
from fenchel.names import unknown
from fenchel.objectives import Conjugate, Entropy, LearnedObjective, Objective, SoftPseudoLabel

ADAPTATION_DEFAULTS: Mapping[str, Any] = {
    "learning_rate": 1e-3,
    "temperature": 1.0,
    "optimizer": "sgd",
    "steps": 1,
    "predict": "after",
    "statistics": "batch",
    "episodic": False,
    "parameters": "normalization",
}
"""The settings of `fenchel.adapt` that a sweep may set; any other belongs to the objective."""

_NOT_OPTIONS = ("loss", "temperature")


def canonical_settings(
    method: str, settings: Mapping[str, Any], loss: Loss, preprocessing: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a `Cell` that say how the model adapts.

    Wrong settings are refused here, before anything runs. `preprocessing` is the checkpoint's, which
    knows the range of the pixels that augmented views need.

    >>> entropy = canonical_settings("entropy", {}, CrossEntropy(), {})
    >>> entropy == canonical_settings("soft", {"steps": 1}, CrossEntropy(), {})
    True
    """
    given = {name: settings.get(name, default) for name, default in ADAPTATION_DEFAULTS.items()}
    options = {name: _frozen(settings[name]) for name in settings if name not in given}
    if method == "memo" and not options.keys() & {"input_range", "mean"}:
        known = preprocessing.get("input_range")
        options |= {} if known is None else {"input_range": tuple(known)}
    objective = _objective(method, given, options, loss)
    given["parameters"] = _frozen(given["parameters"])
    if objective is None:
        given |= {"learning_rate": None, "temperature": None, "optimizer": None, "steps": 1}
        given |= {"predict": "after", "parameters": "normalization"}
        if METHODS[method].source_statistics:
            given |= {"statistics": "source", "episodic": False}
    elif is_conjugate(objective, loss):
        method, objective = "conjugate", Conjugate(loss)
    if isinstance(objective, LearnedObjective):
        # Files change; what was in this one belongs to the run.
        options |= {"path": str(options["path"]), "digest": objective.digest}
        return {"method": method, "options": options, **given, "temperature": objective.temperature}
    return {"method": method, "options": _options_of(objective), **given}


def is_conjugate(objective: Objective, loss: Loss) -> bool:
    """Whether an objective is the same function as the conjugate objective of `loss`.

    Exact identities: at softmax(h) the cross-entropy is the entropy, at sigmoid(h) the binary one is;
    and smoothed labels add a term that vanishes at the conjugate label.
    """
    if isinstance(objective, Entropy):
        softmax = objective.activation == "softmax"
        same = (CrossEntropy, LabelSmoothing) if softmax else (BinaryCrossEntropy,)
        return isinstance(loss, same)
    if isinstance(objective, SoftPseudoLabel):
        return isinstance(loss, (CrossEntropy, BinaryCrossEntropy))
    return isinstance(objective, Conjugate)


def _objective(
    method: str, given: Mapping[str, Any], options: Mapping[str, Any], loss: Loss
) -> Objective | None:
    """The objective that `fenchel.adapt` would use, made by it on a network of two neurons."""
    known = known_options(method, loss)
    for name in options:
        if name not in known:
            raise unknown(f"setting of method {method!r}:", name, [*ADAPTATION_DEFAULTS, *known])
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    rest = {name: value for name, value in given.items() if name != "parameters"}
    return adapt(network, trained_with=loss, method=method, **rest, **options).settings.objective


def known_options(method: str, loss: Loss) -> list[str]:
    """What the objective of a method takes besides the loss and the temperature."""
    if method in FROM_FILES:
        return list(FROM_FILES[method].options)
    made = METHODS[method].build(loss)
    return [] if made is None else list(_options_of(made))


def _options_of(objective: Objective | None) -> dict[str, Any]:
    if objective is None:
        return {}
    return {
        item.name: _listed(getattr(objective, item.name))
        for item in dataclasses.fields(objective)
        if item.name not in _NOT_OPTIONS
    }


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    """Tuples as JSON gives them back."""
    return list(value) if isinstance(value, tuple) else value
