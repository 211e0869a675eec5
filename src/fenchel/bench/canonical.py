"""One spelling for equal runs: defaults written out, unused settings dropped, equal objectives merged.

A sweep may name the same computation several times. For a model trained with cross-entropy, three
methods are one function: the entropy of the softmax, its own probabilities as the label, and the
conjugate label. They are run once; tables still show one row per name in the sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fenchel.adapters import METHODS, Method, Settings
from fenchel.api import LEARNING_RATE, as_optimizer
from fenchel.losses import BinaryCrossEntropy, CrossEntropy, LabelSmoothing, Loss
from fenchel.methods import Descent, EntropyMethod, made_method
from fenchel.methods.choosing import settings_of
from fenchel.names import unknown
from fenchel.objectives import Conjugate, Entropy, Objective, SoftPseudoLabel

ADAPTATION_DEFAULTS: Mapping[str, Any] = {
    "learning_rate": LEARNING_RATE,
    "temperature": None,
    "optimizer": "sgd",
    "steps": 1,
    "predict": "after",
    "statistics": "batch",
    "episodic": False,
    "parameters": "normalization",
    "protect": False,
}
"""The settings of `fenchel.adapt` that a sweep may set; any other belongs to the method. A method that was
made for others has them as its `defaults`."""
LEFT_OPEN = ("learning_rate", "temperature", "optimizer", "predict", "statistics", "parameters")
"""What a protected run leaves to `fenchel.adapt` unless the sweep says it: the defaults above are those of
the bare step."""


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
    kind = METHODS[method]
    explicit = {
        name: value
        for name, value in settings.items()
        if value is not None or name not in ADAPTATION_DEFAULTS  # None: as if it were not there
    }
    given_settings = settings_of(kind, method, explicit.pop("settings", None))
    chosen = {**kind.defaults, **given_settings, **explicit}
    given = {name: chosen.get(name, default) for name, default in ADAPTATION_DEFAULTS.items()}
    options = {name: _frozen(value) for name, value in chosen.items() if name not in given}
    for name in options:
        if name not in kind.options():
            known = [*ADAPTATION_DEFAULTS, "settings", *kind.options()]
            raise unknown(f"setting of method {method!r}:", name, known)
    known_range = preprocessing.get("input_range")
    made = made_method(
        method,
        loss,
        options,
        temperature=given["temperature"],
        input_range=None if known_range is None else tuple(known_range),
    )
    made.check()
    Settings(  # refuses what no adapter takes
        method=made,
        optimizer=as_optimizer(given["optimizer"], given["learning_rate"]),
        **{name: given[name] for name in ("statistics", "steps", "predict", "episodic", "protect")},
    )
    if protect := given.pop("protect"):
        said = {**given_settings, **explicit}
        given |= {name: _frozen(said.get(name)) for name in LEFT_OPEN} | {"protect": protect}
        return {"method": method, "options": _options_of(made, options), **given}
    given["parameters"] = _frozen(given["parameters"])
    if made.statistics is not None:
        given["statistics"] = made.statistics
        if not made.moves and not made.remembers:
            given["episodic"] = False
    if not made.moves:
        given |= {"learning_rate": None, "temperature": None, "optimizer": None, "steps": 1}
        given["parameters"] = "normalization"
        if not made.remembers:
            given["predict"] = "after"
        return {"method": method, "options": _options_of(made, options), **given}
    if isinstance(made, Descent):
        given["temperature"] = made.objective.temperature
        if is_conjugate(made.objective, loss):
            method, options = "conjugate", {}
            made = Descent(objective=Conjugate(loss))
    elif isinstance(made, EntropyMethod):
        given["temperature"] = made.term.temperature
        conjugate = replace(made, objective="conjugate").trained_with(loss)
        if is_conjugate(made.term, loss) and is_conjugate(conjugate.term, loss):
            made = replace(made, objective="conjugate")
    return {"method": method, "options": _options_of(made, options), **given}


def _options_of(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method, defaults included, as JSON gives them back."""
    source = method.objective if isinstance(method, Descent) else method
    written = {name: str(value) if name == "path" else value for name, value in given.items()}
    values = {**written, **source.settings()}
    defaults = source.options()
    return {
        name: _listed(value)
        for name, value in values.items()
        if _is_plain(value)
        or value != defaults.get(name)  # an object that is the default says nothing
    }


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


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_plain(value: Any) -> bool:
    """Whether a record can hold it."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _listed(value: Any) -> Any:
    """Tuples as JSON gives them back."""
    return list(value) if isinstance(value, tuple) else value
