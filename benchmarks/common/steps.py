"""The variants of an adaptation step that are compared, and the networks they run on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

import fenchel
from fenchel.adapters.monitor import Monitor, Predicted
from fenchel.models import build
from fenchel.performance import retain_freed_memory

EPSILON = 6.0
NAIVE, FULL, BEFORE, BARE = "naive step", "full step", "predict before", "bare forward + backward"
RARELY, PERIOD = "update_every=5", 5
PROTECTED, COMPARED = "protected step", "protected, source every batch"


@dataclass(frozen=True)
class Case:
    """A network and the batch it meets."""

    model: str
    classes: int
    batch: int
    side: int

    def __str__(self) -> str:
        return f"{self.model}, {self.classes} classes, {self.batch} x {self.side} px"


CASES = {
    "wide": Case("resnet26_wide", 10, 200, 32),
    "thin": Case("resnet26", 10, 200, 32),
    "imagenet": Case("resnet50", 1000, 16, 224),
}
QUICK = {"quick": Case("resnet26", 10, 16, 8)}


class NaiveStep:
    """The step as released research code takes it."""

    def __init__(self, model: nn.Module, objective: Callable[[Tensor], Tensor]) -> None:
        self.model = copy.deepcopy(model).train().requires_grad_(False)
        moving = []
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.requires_grad_(True)
                module.track_running_stats = False
                module.running_mean = module.running_var = None
                moving += [module.weight, module.bias]
        self.optimizer = torch.optim.SGD(moving, lr=1e-3, momentum=0.9, nesterov=True)
        self.objective = objective

    def __call__(self, x: Tensor) -> Tensor:
        loss = self.objective(self.model(x)).mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        # Its caller's variable keeps the last output, and the graph behind it, until the next is there.
        output: Tensor = self.model(x)
        self.output = output
        return output


def dense_conjugate(h: Tensor) -> Tensor:
    """PolyLoss at the label solved from the C x C system of every sample, within autograd."""
    z = h.softmax(-1)
    spread = torch.diag_embed(z) - z[:, :, None] * z[:, None, :]
    matrix = torch.eye(h.shape[-1], dtype=h.dtype) + EPSILON * spread
    label: Tensor = torch.linalg.solve(matrix, z)
    return h.logsumexp(-1) - (label * (h - EPSILON * (1 - z))).sum(-1)


def entropy(h: Tensor) -> Tensor:
    return -(h.softmax(-1) * h.log_softmax(-1)).sum(-1)


def bare_pass(model: nn.Module) -> Callable[[Tensor], object]:
    """Forward and backward to the normalisation layers, and nothing else."""
    naive = NaiveStep(model, entropy)
    moving = [value for group in naive.optimizer.param_groups for value in group["params"]]

    def run(x: Tensor) -> object:
        x = x.contiguous(memory_format=torch.channels_last)
        return torch.autograd.grad(naive.model(x).logsumexp(-1).mean(), moving)

    return run


def inference(model: nn.Module) -> Callable[[Tensor], object]:
    """One forward pass, for the source model's prediction."""
    model = copy.deepcopy(model)
    return lambda x: torch.inference_mode()(model)(x)


def convolutions_alone(model: nn.Module, x: Tensor) -> Callable[[Tensor], object]:
    """Every convolution of a step on tensors of its true shapes: forward, input gradient, forward.

    The first one meets the images, to which no gradient flows.
    """
    met: list[tuple[nn.Conv2d, Tensor, Tensor]] = []

    def note(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        shapes = (torch.rand(tensor.shape) for tensor in (given[0], output))
        inputs, slope = (value.contiguous(memory_format=torch.channels_last) for value in shapes)
        met.append((module, inputs, slope))

    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    hooks = [module.register_forward_hook(note) for module in convolutions]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()

    def run(_: Tensor) -> object:
        with torch.no_grad():
            for module, inputs, _ in 2 * met:
                module(inputs)
            for module, inputs, slope in met[1:]:
                conv2d_input(inputs.shape, module.weight, slope, module.stride, module.padding)  # type: ignore[no-untyped-call]
        return None

    return run


class NeverComparing(Monitor):
    """Asks for the source's predictions on no batch."""

    def wants_comparison(self, adapted: Predicted) -> bool:
        return False


class AlwaysComparing(Monitor):
    """Asks for the source's predictions on every batch."""

    def wants_comparison(self, adapted: Predicted) -> bool:
        return True


def ways_of(
    case: Case, retain: bool = False, compiled: bool = False
) -> dict[str, Callable[[], object]]:
    """Every way, ready to run on one batch; `retain` keeps this process's freed memory for good."""
    if retain and not retain_freed_memory():
        raise SystemExit("freed memory can be retained on Linux with glibc only; drop --retain.")
    torch.manual_seed(0)
    model = build(case.model, classes=case.classes).eval()
    x = torch.rand(case.batch, 3, case.side, case.side)

    def adapter(**options: Any) -> fenchel.Adapter:
        loss = fenchel.PolyLoss(epsilon=EPSILON)
        return fenchel.adapt(model, trained_with=loss, protect=False, **options)

    def one_period() -> Callable[[Tensor], object]:
        adapted = adapter(update_every=PERIOD)
        return lambda x: [adapted(x) for _ in range(PERIOD)]

    def protected(monitor: Monitor) -> fenchel.Adapter:
        adapted = fenchel.adapt(model, trained_with=fenchel.PolyLoss(epsilon=EPSILON))
        assert adapted.watch is not None
        adapted.watch.monitor = monitor
        return adapted

    # The dense solve at 1,000 classes would only make the naive step slower.
    makers: dict[str, Callable[[], Callable[[Tensor], object]]] = {
        NAIVE: lambda: NaiveStep(model, entropy if case.classes > 100 else dense_conjugate),
        FULL: adapter,
        BEFORE: lambda: adapter(predict="before"),
        "last:1": lambda: adapter(parameters="last:1"),
        RARELY: one_period,
        PROTECTED: lambda: protected(NeverComparing()),
        COMPARED: lambda: protected(AlwaysComparing()),
        BARE: lambda: bare_pass(model),
        "convolutions alone": lambda: convolutions_alone(model, x),
        "inference": lambda: inference(model),
    }
    if compiled:
        makers["compile"] = lambda: adapter(compile=True)
    return {name: _Lazy(make, x) for name, make in makers.items()}


class _Lazy:
    """Makes the way when it is first run: a process that runs one does not pay for the others."""

    def __init__(self, make: Callable[[], Callable[[Tensor], object]], x: Tensor) -> None:
        self._make, self._x = make, x
        self._run: Callable[[], object] | None = None

    def __call__(self) -> object:
        if self._run is None:
            self._run = partial(self._make(), self._x)
        return self._run()
