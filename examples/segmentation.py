"""Dense predictions: a model that returns a dictionary, with the classes on axis 1."""

import torch
from torch import Tensor, nn

import fenchel


class Segmenter(nn.Module):
    """A tiny fully convolutional network, (N, 3, H, W) -> {"out": (N, 5, H, W)}."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Conv2d(16, 5, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"out": self.head(self.body(images))}


def main() -> None:
    torch.manual_seed(0)
    adapted = fenchel.adapt(
        Segmenter(),
        trained_with=fenchel.FocalLoss(gamma=2.0),
        logits="out",
        dim=1,
    )
    output = adapted(torch.rand(16, 3, 32, 32))
    print(tuple(output["out"].shape), adapted.health())


if __name__ == "__main__":
    main()
