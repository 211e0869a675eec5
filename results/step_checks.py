"""Real streams, adapted by this library and by a step written without it, in double precision.

    python results/step_checks.py     # results/step-checks.csv

The other step solves Dg(h)^T y = grad f(h) with dense matrices that torch.func differentiates out of f and g,
lets autograd go through the solution, and moves the BatchNorm layers with torch.optim.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap

import fenchel
from fenchel.bench.tuned import read_tuned
from fenchel.data.corruptions import VALIDATION_CORRUPTIONS
from fenchel.data.stream import Shift, Stream, corruption_shifts
from fenchel.files import write_atomically
from fenchel.models import load_checkpoint, zoo
from fenchel.progress import progress
from fenchel.report.layout import to_csv

HERE = Path(__file__).parent
BATCH, IMAGES = 100, 2000
HEADINGS = (
    "source", "corruption", "images", "learning_rate", "error", "error_of_reference",
    "predictions_that_differ", "largest_difference_of_objective", "largest_difference_of_gradient",
)  # fmt: skip

Function = Callable[[Tensor], Tensor]

FORMS: dict[str, tuple[Function, Function]] = {
    "ce": (lambda h: h.logsumexp(-1), lambda h: h),
    "poly": (lambda h: h.logsumexp(-1), lambda h: h - 6 * (1 - h.softmax(-1))),
    "squared": (lambda h: h.square().sum(-1) / 2, lambda h: h),
}
"""f and g of the training losses, by the end of the source's name."""


def conjugate(source: str, h: Tensor) -> Tensor:
    """The objective of every row, by its definition."""
    f, g = FORMS[source]
    label: Tensor = torch.linalg.solve(vmap(jacrev(g))(h).mT, vmap(grad(f))(h))
    return f(h) - (label * g(h)).sum(-1)


class Reference:
    """One step a batch in float64, prediction after it."""

    def __init__(self, source: str, model: nn.Module, rate: float) -> None:
        self.source = source
        self.model = copy.deepcopy(model).double().train().requires_grad_(False)
        moving = []
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.track_running_stats = False
                module.running_mean = module.running_var = None
                moving += list(module.requires_grad_().parameters())
        self.optimizer = torch.optim.SGD(moving, lr=rate, momentum=0.9, nesterov=True)

    def __call__(self, images: Tensor) -> Tensor:
        images = images.double()
        self.optimizer.zero_grad()
        torch.autograd.backward(conjugate(self.source, self.model(images)).mean())
        self.optimizer.step()
        with torch.no_grad():
            logits: Tensor = self.model(images)
        return logits


def differences(source: str, objective: Function, logits: Tensor) -> tuple[float, float]:
    """Of the objective and of its gradient, largest of a batch, each as a part of the largest value."""
    found = []
    for function, h in (
        (objective, logits.detach()),
        (lambda h: conjugate(source, h), logits.detach().double()),
    ):
        h.requires_grad_()
        value = function(h)
        found.append((value.detach(), torch.autograd.grad(value.sum(), h)[0]))
    ours, theirs = found
    parts = [
        float((mine - other).abs().max() / other.abs().max())
        for mine, other in zip(ours, theirs, strict=True)
    ]
    return parts[0], parts[1]


def check(source: str, rate: float, shift: Shift) -> tuple[object, ...]:
    """A stream adapted both ways."""
    checkpoint = load_checkpoint(zoo.path_of(f"cifar10-resnet26-{source}"))
    adapter = fenchel.adapt(
        checkpoint, method="conjugate", optimizer="sgd", learning_rate=rate, protect=False
    )
    objective = fenchel.losses.parse(checkpoint.loss_spec).conjugate
    reference = Reference(source, checkpoint.model, rate)
    wrong, wrong_of_reference, differ, largest = 0, 0, 0, (0.0, 0.0)
    for batch in Stream(shifts=[shift], batch_size=BATCH, limit=IMAGES, seed=0):
        logits = adapter(batch.inputs)
        labels = batch.reveal_labels()
        ours, theirs = logits.argmax(-1), reference(batch.inputs).argmax(-1)
        wrong += int((ours != labels).sum())
        wrong_of_reference += int((theirs != labels).sum())
        differ += int((ours != theirs).sum())
        worse = differences(source, objective, logits)
        largest = (max(largest[0], worse[0]), max(largest[1], worse[1]))
    errors = (100 * wrong / IMAGES, 100 * wrong_of_reference / IMAGES)
    return (source, shift.name, IMAGES, rate, *errors, differ, *(f"{part:.1e}" for part in largest))


def main() -> None:
    torch.set_num_threads(1)
    rates = {}
    for source in FORMS:
        tuned = zoo.folder() / f"cifar10-resnet26-{source}.t1.json"
        if tuned.is_file():
            chosen = {choice.method: choice.settings for choice in read_tuned(tuned).choices}
            rates[source] = chosen["conjugate"]["learning_rate"]
    shifts = corruption_shifts("cifar10-c", corruptions=VALIDATION_CORRUPTIONS)
    rows = []
    with progress("checking", total=len(rates) * len(shifts)) as bar:
        for source, rate in rates.items():
            for shift in shifts:
                rows.append(check(source, rate, shift))
                write_atomically(HERE / "step-checks.csv", to_csv(HEADINGS, rows).encode())
                bar.advance()


if __name__ == "__main__":
    main()
