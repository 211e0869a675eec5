"""Small models: a convolutional network for digits and a linear classifier."""

from __future__ import annotations

from torch import Tensor, nn

from fenchel.models.preprocessing import PerChannel, for_channels
from fenchel.names import register


def _stage(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


@register("digit_network")
class DigitNetwork(nn.Module):
    """Three 3x3 convolutions with BatchNorm, two poolings, mean, linear; images of 8 px and up."""

    def __init__(
        self,
        *,
        classes: int = 10,
        channels: int = 1,
        width: int = 32,
        mean: PerChannel = None,
        std: PerChannel = None,
    ) -> None:
        super().__init__()
        self.preprocessing = for_channels(channels, mean, std)
        self.features = nn.Sequential(
            *_stage(channels, width),
            nn.MaxPool2d(2),
            *_stage(width, 2 * width),
            nn.MaxPool2d(2),
            *_stage(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(1),
        )
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, channels, h, w) in [0, 1] -> logits (batch, classes)."""
        logits: Tensor = self.fc(self.features(self.preprocessing(images)).flatten(1))
        return logits


@register("linear")
class Linear(nn.Module):
    """`W x + b` of the flattened input; one class is one score, as the exponential loss takes."""

    def __init__(self, *, features: int, classes: int = 1, bias: bool = True) -> None:
        super().__init__()
        self.fc = nn.Linear(features, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (batch, ...) of `features` numbers each -> logits (batch, classes)."""
        logits: Tensor = self.fc(x.flatten(1))
        return logits
