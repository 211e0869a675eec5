"""MobileNetV2: inverted residual blocks, with torchvision's names inside, so its public weights load."""

from __future__ import annotations

from torch import Tensor, nn

from fenchel.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, PerChannel, for_channels
from fenchel.names import register

# Expansion, output channels, blocks and stride of the first block, stage by stage.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, FEATURES = 32, 1280


def _layer(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, batch normalisation and ReLU6."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter every channel by 3x3, narrow by 1x1; beside a shortcut where shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers = [] if expansion == 1 else [_layer(inputs, hidden)]
        layers.append(_layer(hidden, hidden, 3, stride, groups=hidden))
        self.conv = nn.Sequential(
            *layers, nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) -> (batch, outputs, h / stride, w / stride)."""
        output: Tensor = self.conv(x)
        return x + output if self.has_shortcut else output


@register("mobilenet_v2")
class MobileNetV2(nn.Module):
    """MobileNetV2 for 224 pixels, 3.5 M; takes torchvision's public weights.

    Args:
        classes: outputs of the last layer.
        channels: channels of the input images, which lie in [0, 1].
        width: multiplies the channels of every stage; they stay multiples of eight.
        mean, std: the preprocessing; by default ImageNet's, for three channels.
    """

    def __init__(
        self,
        *,
        classes: int = 1000,
        channels: int = 3,
        width: float = 1.0,
        mean: PerChannel = None,
        std: PerChannel = None,
    ) -> None:
        super().__init__()
        if channels == 3:
            mean = IMAGENET_MEAN if mean is None else mean
            std = IMAGENET_STD if std is None else std
        self.preprocessing = for_channels(channels, mean, std)
        inputs = _channels(STEM, width)
        layers = [_layer(channels, inputs, 3, 2)]
        for expansion, outputs, depth, stride in STAGES:
            for position in range(depth):
                wanted = _channels(outputs, width)
                first = stride if position == 0 else 1
                layers.append(InvertedResidual(inputs, wanted, first, expansion))
                inputs = wanted
        features = _channels(FEATURES, max(1.0, width))
        self.features = nn.Sequential(*layers, _layer(inputs, features))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(features, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, 3, h, w) in [0, 1] -> logits (batch, classes)."""
        x = self.features(self.preprocessing(images)).mean((2, 3))
        logits: Tensor = self.classifier(x)
        return logits


def _channels(count: int, width: float) -> int:
    """The nearest multiple of eight, and never less than nine tenths of what was asked."""
    wanted = count * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded
