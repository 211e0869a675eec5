"""Adapt a model of your own to a drifting stream, with any training loss, and see whether it helps."""

import torch
from torch import nn

import fenchel


def make_data(
    count: int, shift: float, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Three clusters in the plane; the shift moves and stretches them all."""
    centres = torch.tensor([[0.0, 2.0], [-2.0, -1.0], [2.0, -1.0]])
    labels = torch.randint(3, (count,), generator=generator)
    points = centres[labels] + 0.6 * torch.randn(count, 2, generator=generator)
    return points * (1 + shift) + 3 * shift, labels


def train(model: nn.Module, loss: fenchel.PolyLoss, generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(200):
        x, y = make_data(128, 0.0, generator)
        optimizer.zero_grad()
        loss(model(x), y).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
    loss = fenchel.PolyLoss(epsilon=2.0)
    train(model, loss, generator)

    for method in ("source", "bn", "conjugate"):
        adapted = fenchel.adapt(model, trained_with=loss, method=method, learning_rate=1e-2)
        stream = torch.Generator().manual_seed(1)
        wrong = 0
        for _ in range(20):
            x, y = make_data(64, 0.8, stream)
            wrong += int((adapted(x).argmax(-1) != y).sum())
        print(
            f"{method:>9}: {100 * wrong / (20 * 64):5.2f} % error, {adapted.health().updates} updates"
        )


if __name__ == "__main__":
    main()
