"""Which parameters move, that is, are updated by adaptation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase

from torch import Tensor, nn

from fenchel.adapters.normalization import is_normalization
from fenchel.names import unknown

Selection = str | Collection[str] | Callable[[str, Tensor], bool]
"""A policy ("normalization", "last:1", "but-last:1", "all"), names or patterns such as "layer4.*.weight",
or a predicate."""

POLICIES = ("normalization", "last:1", "but-last:1", "all")


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
    elif isinstance(selection, str) and selection.startswith(("last:", "but-last:")):
        chosen = _by_stages(model, _of_normalization_layers(model, names), selection)
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


def _by_stages(model: nn.Module, chosen: list[str], selection: str) -> list[str]:
    """The parameters of the last stages (`last:N`), or of all the others (`but-last:N`).

    With the last ones alone, everything in front of them is computed once per batch. A network of one
    stage has no others: all of its parameters stay.
    """
    policy, _, count = selection.partition(":")
    stages = _stages(model, chosen)
    if policy == "but-last" and len(stages) == 1:
        return chosen
    most = len(stages) if policy == "last" else len(stages) - 1
    if not count.isdigit() or not 1 <= int(count) <= most:
        raise ValueError(
            f"parameters='{policy}:N' needs N from 1 to {most} in this network, whose stages with "
            f"normalisation layers are {', '.join(path.removesuffix('.') for path in stages)}; got "
            f"{selection!r}."
        )
    last = tuple(stages[-int(count) :])
    return [name for name in chosen if name.startswith(last) == (policy == "last")]


def _stages(model: nn.Module, chosen: list[str]) -> list[str]:
    """The prefixes of the stages: children of the network with normalisation layers in them.

    Wrappers around a single such child are looked through.
    """
    stages, prefix, holder = [""], "", model
    while len(stages) == 1:
        prefix = stages[0]
        holder = model.get_submodule(prefix.removesuffix("."))
        paths = [f"{prefix}{name}." for name, _ in holder.named_children()]
        inside = [path for path in paths if any(name.startswith(path) for name in chosen)]
        if not inside:
            break
        stages = inside
    return stages


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
