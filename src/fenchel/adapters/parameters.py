"""Which parameters move."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase

from torch import Tensor, nn

from fenchel.adapters.normalization import is_normalization
from fenchel.names import unknown

Selection = str | Collection[str] | Callable[[str, Tensor], bool]
"""A policy ("normalization" or "all"), names or patterns such as "layer4.*.weight", or a predicate."""

POLICIES = ("normalization", "all")


def moving_names(model: nn.Module, selection: Selection) -> list[str]:
    """The names of the parameters that `selection` lets move, in the model's order."""
    names = {name: value for name, value in model.named_parameters() if value.is_floating_point()}
    if not names:
        raise ValueError(f"{type(model).__name__} has no parameters: there is nothing to adapt.")
    if callable(selection):
        chosen = [name for name, value in names.items() if selection(name, value)]
    elif selection == "all":
        chosen = list(names)
    elif selection == "normalization":
        chosen = _of_normalization_layers(model, names)
    else:
        chosen = _by_pattern(list(names), selection)
    if not chosen:
        raise ValueError(
            "the selection of parameters is empty. Select by policy ('normalization', 'all'), by names or "
            "patterns (['head.*']), or by a predicate that accepts at least one of: "
            f"{', '.join(list(names)[:4])}, ..."
        )
    return chosen


def _of_normalization_layers(model: nn.Module, names: Iterable[str]) -> list[str]:
    owned = {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if is_normalization(module)
        for name, _ in module.named_parameters(recurse=False)
    }
    chosen = [name for name in names if name in owned]
    if not chosen:
        raise ValueError(
            f"{type(model).__name__} has no normalisation layers with learnable parameters, which are what "
            "adaptation moves by default. Choose others: parameters='all', or names such as "
            f"parameters={list(names)[-2:]!r}."
        )
    return chosen


def _by_pattern(names: list[str], selection: object) -> list[str]:
    patterns = [selection] if isinstance(selection, str) else selection
    if not isinstance(patterns, Collection) or not all(isinstance(p, str) for p in patterns):
        raise TypeError(
            "parameters must be a policy ('normalization', 'all'), names or patterns, or a predicate of "
            f"(name, tensor); got {selection!r}."
        )
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise unknown("parameter policy, name or pattern", pattern, [*POLICIES, *names])
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
