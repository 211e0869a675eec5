"""Derive the label and the test-time objective of a training loss of your own; see a loss refused."""

import torch
from torch import Tensor

import fenchel


def weighted_cross_entropy(h: Tensor, y: Tensor) -> Tensor:
    weights = torch.linspace(1, 3, h.shape[-1]).to(h)
    return -(weights * y * h.log_softmax(-1)).sum(-1)


def mean_absolute_error(h: Tensor, y: Tensor) -> Tensor:
    return (y * (1 - h.softmax(-1))).sum(-1)


def main() -> None:
    loss = fenchel.derive(weighted_cross_entropy)
    print(loss.findings())
    h = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    print("label    ", loss.label(h))
    print("objective", loss.conjugate(h))
    try:
        fenchel.derive(mean_absolute_error)
    except ValueError as reason:
        print("refused: ", reason)


if __name__ == "__main__":
    main()
