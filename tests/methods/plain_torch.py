"""Plain torch for re-statements of methods: networks that are trained in place, no code of the library.

A re-statement runs a network of its own through an ordinary loop: forward, `backward`, `optimizer.step()`.
Batch normalisation uses the batch, as `train()` would, and dropout does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES, SIZE, BATCHES = 5, 8, 20

MOST = math.log(CLASSES)
"""The largest entropy, ln C."""

Term = Callable[[Tensor], Tensor]


def network(norm: str, seed: int = 0) -> nn.Sequential:
    """Two normalised convolutions and a head whose predictions are sure for some samples only."""
    torch.manual_seed(seed)

    def layer(channels: int, side: int) -> nn.Module:
        return {
            "batch": lambda: nn.BatchNorm2d(channels),
            "layer": lambda: nn.LayerNorm([channels, side, side]),
            "group": lambda: nn.GroupNorm(2, channels),
        }[norm]()

    made = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        layer(6, SIZE),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        layer(8, SIZE // 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * (SIZE // 2) ** 2, CLASSES),
    ).double()
    with torch.no_grad():
        for number in (1, 4):
            made[number].weight.uniform_(0.5, 1.5)
            made[number].bias.uniform_(-0.3, 0.3)
        made[7].weight.mul_(4.5)
    return made


def in_place(model: nn.Module) -> nn.Module:
    """The same network as a loop would train it: batch statistics, and no record of them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
    return model


def affine(model: nn.Module, stages: int = 2) -> list[nn.Parameter]:
    """Weights and biases of the first normalisation layers."""
    layers = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d | nn.LayerNorm)][:stages]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    chosen = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    for parameter in chosen:
        parameter.requires_grad_()
    return chosen


def stream(count: int = BATCHES, size: int = 16, seed: int = 1) -> list[Tensor]:
    """Batches of images in [0, 1], each a little brighter than the last."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, size, 3, SIZE, SIZE, generator=generator, dtype=torch.float64)
    return [batch * 0.7 + 0.3 * index / count for index, batch in enumerate(images)]


def entropy(logits: Tensor) -> Tensor:
    """-sum p log p, in nats."""
    p = logits.softmax(-1)
    return -(p * logits.log_softmax(-1)).sum(-1)


def poly_conjugate(logits: Tensor, epsilon: float = 2.0) -> Tensor:
    """f - <y, g> of PolyLoss at its conjugate label y, proportional to z / (1 + epsilon z)."""
    z = logits.softmax(-1)
    y = z / (1 + epsilon * z)
    y = y / y.sum(-1, keepdim=True)
    return logits.logsumexp(-1) - (y * (logits - epsilon * (1 - z))).sum(-1)


def squared_conjugate(logits: Tensor) -> Tensor:
    """-1/2 |h|^2, which has no minimum."""
    return -0.5 * logits.square().sum(-1)


TERMS: dict[str, Term] = {
    "cross-entropy": entropy,
    "poly:epsilon=2": poly_conjugate,
    "squared": squared_conjugate,
}
"""The loss term of an entropy method by training loss."""


def agree(
    adapted: nn.Module, outputs: list[Tensor], model: nn.Module, wanted: list[Tensor]
) -> None:
    """Outputs of every batch and the moving parameters are the re-statement's, within 1e-8."""
    for ours, theirs in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    theirs = dict(model.named_parameters())
    moved = adapted.state.parameters
    assert moved, "nothing moved"
    for name, value in moved.items():
        torch.testing.assert_close(value, theirs[name].detach(), rtol=1e-8, atol=1e-8)


def eta_loop(
    model: nn.Module,
    batches: list[Tensor],
    term: Term,
    *,
    similarity: float = 0.9,
    predict: str = "before",
    penalty: Callable[[], Tensor | float] = lambda: 0.0,
    forget: Callable[[int], torch.optim.Optimizer | None] = lambda number: None,
) -> tuple[list[Tensor], list[int]]:
    """ETA as a loop over batches; how many samples it kept shows whether its gates did anything.

    `penalty` is added to the loss; `forget` may undo everything before a batch and give a new optimiser.
    """
    parameters = affine(in_place(model))
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    mean, outputs, kept = None, [], []
    for number, x in enumerate(batches):
        if (fresh := forget(number)) is not None:
            optimizer, mean = fresh, None
        logits = model(x)
        p, h = logits.softmax(1).detach(), entropy(logits).detach()
        rows = [
            row
            for row in range(len(x))
            if h[row] < 0.4 * MOST
            and (mean is None or abs(F.cosine_similarity(p[row], mean, dim=0)) < similarity)
        ]
        kept.append(len(rows))
        if rows:
            latest = p[rows].mean(0)
            mean = latest if mean is None else 0.9 * mean + 0.1 * latest
            weights = torch.exp(0.4 * MOST - h[rows])
            loss = (weights * term(logits)[rows]).mean() + penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            outputs.append(logits.detach() if predict == "before" else model(x))
    return outputs, kept
