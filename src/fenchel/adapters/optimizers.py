"""Optimisers as pure functions of (parameters, gradients, moments), so that a step can be undone.

The named ones follow `torch.optim` (weight decay 0) and never wait for the device. Any other
`torch.optim` optimiser may drive the same state through `TorchOptimizer`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, final

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """A rule that turns gradients into new parameters and new moments."""

    @abstractmethod
    def start(self, parameters: Tensors) -> Tensors:
        """The moments before the first update."""

    @abstractmethod
    def update(
        self, parameters: Tensors, gradients: Tensors, moments: Tensors
    ) -> tuple[Tensors, Tensors]:
        """New parameters and moments; nothing is modified in place."""


@dataclass(frozen=True, kw_only=True)
class _NamedOptimizer(Optimizer):
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate >= 0):
            raise ValueError(
                f"{type(self).__name__} needs a finite learning_rate >= 0; got {self.learning_rate!r}."
            )


@final
@dataclass(frozen=True, kw_only=True)
class SGD(_NamedOptimizer):
    """Stochastic gradient descent with momentum, Nesterov's by default.

    >>> import fenchel
    >>> network = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    >>> adapted = fenchel.adapt(
    ...     network, trained_with="cross-entropy", optimizer=SGD(learning_rate=1e-2, nesterov=False)
    ... )
    >>> adapted.settings.optimizer
    SGD(learning_rate=0.01, momentum=0.9, nesterov=False)
    """

    momentum: float = 0.9
    nesterov: bool = True

    def start(self, parameters: Tensors) -> Tensors:
        return {f"momentum.{name}": torch.zeros_like(value) for name, value in parameters.items()}

    def update(
        self, parameters: Tensors, gradients: Tensors, moments: Tensors
    ) -> tuple[Tensors, Tensors]:
        new_parameters, new_moments = {}, {}
        for name, value in parameters.items():
            velocity = torch.add(gradients[name], moments[f"momentum.{name}"], alpha=self.momentum)
            direction = velocity
            if self.nesterov:
                direction = torch.add(gradients[name], velocity, alpha=self.momentum)
            new_moments[f"momentum.{name}"] = velocity
            new_parameters[name] = torch.add(value, direction, alpha=-self.learning_rate)
        return new_parameters, new_moments


@final
@dataclass(frozen=True, kw_only=True)
class Adam(_NamedOptimizer):
    """Adam with bias correction.

    >>> import fenchel
    >>> network = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy", optimizer=Adam())
    >>> adapted.settings.optimizer
    Adam(learning_rate=0.001, betas=(0.9, 0.999), epsilon=1e-08)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def start(self, parameters: Tensors) -> Tensors:
        first = next(iter(parameters.values()))
        moments = {"step": torch.zeros((), dtype=_real(first.dtype), device=first.device)}
        for name, value in parameters.items():
            moments[f"mean.{name}"] = torch.zeros_like(value)
            moments[f"square.{name}"] = torch.zeros_like(value)
        return moments

    def update(
        self, parameters: Tensors, gradients: Tensors, moments: Tensors
    ) -> tuple[Tensors, Tensors]:
        slow, slower = self.betas
        step = moments["step"].to(_real(moments["step"].dtype)) + 1  # halves count to 2048 only
        # 1 - beta^t by expm1: accurate in float32, and no wait for the device to learn t.
        mean_bias = -torch.expm1(step * math.log(slow))
        root_bias = (-torch.expm1(step * math.log(slower))).sqrt()
        new_parameters, new_moments = {}, {"step": step}
        for name, value in parameters.items():
            gradient = gradients[name]
            mean = torch.lerp(moments[f"mean.{name}"], gradient, 1 - slow)
            square = slower * moments[f"square.{name}"] + (1 - slower) * gradient * gradient
            denominator = square.sqrt() / root_bias + self.epsilon
            change = (self.learning_rate / mean_bias) * mean / denominator
            new_parameters[name] = value - change.to(value.dtype)
            new_moments[f"mean.{name}"], new_moments[f"square.{name}"] = mean, square
        return new_parameters, new_moments


@final
@dataclass(frozen=True, kw_only=True)
class TorchOptimizer(Optimizer):
    """Any `torch.optim` optimiser, made by `factory(parameters)`.

    Its state travels in the moments, so reset and save work as for the others; reading and writing it
    costs a little more.
    """

    factory: Callable[[Iterable[Tensor]], torch.optim.Optimizer]

    def start(self, parameters: Tensors) -> Tensors:
        optimizer, leaves = self._made_for(parameters)  # fails now rather than within a stream
        closure = signature(optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is Parameter.empty:
            raise TypeError(
                f"the optimizer must step on gradients alone; {type(optimizer).__name__} needs a closure. "
                "Use another, such as 'sgd' or torch.optim.AdamW."
            )
        # Until a first update was allowed there are no moments, whatever a skipped one left behind.
        device = next(iter(leaves.values())).device
        return {"started": torch.zeros((), dtype=torch.bool, device=device)}

    def update(
        self, parameters: Tensors, gradients: Tensors, moments: Tensors
    ) -> tuple[Tensors, Tensors]:
        optimizer, leaves = self._made_for(parameters)
        for name, leaf in leaves.items():
            leaf.grad = gradients[name].to(leaf.dtype)
        if bool(moments["started"]):
            on_host = not any(
                group.get("capturable") or group.get("fused") for group in optimizer.param_groups
            )
            for key, value in moments.items():
                name, slash, rest = key.partition("/")
                if slash:
                    counter = on_host and value.ndim == 0 and leaves[name].ndim > 0
                    optimizer.state[leaves[name]][rest] = (
                        value.cpu() if counter else value
                    ).clone()
        optimizer.step()
        new_moments = {
            f"{name}/{key}": torch.as_tensor(value).detach().clone()
            for name, leaf in leaves.items()
            for key, value in optimizer.state[leaf].items()
            if value is not None
        }
        new_moments["started"] = torch.ones_like(moments["started"])
        return {name: leaf.detach() for name, leaf in leaves.items()}, new_moments

    def _made_for(self, parameters: Tensors) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
        leaves = {
            name: torch.nn.Parameter(value.detach().clone()) for name, value in parameters.items()
        }
        optimizer = self.factory(list(leaves.values()))
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                "optimizer must be 'sgd', 'adam', or a callable that makes a torch.optim.Optimizer from "
                f"parameters; the callable returned {type(optimizer).__name__}."
            )
        return optimizer, leaves


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
