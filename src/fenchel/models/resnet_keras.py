"""ResNet-50 as Keras has it: the first convolution of a stage strides, and BatchNorm's epsilon is 0.001."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fenchel.models.resnet import Bottleneck, ResNet
from fenchel.names import register

EPSILON = 1e-3
# Of red, green and blue from 0 to 255; the weights know no deviation.
MEANS = (123.68, 116.779, 103.939)


class EarlyStride(Bottleneck):
    """A bottleneck whose first 1x1 convolution strides, as in the first published ResNets."""

    def __init__(
        self, inputs: int, width: int, stride: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__(inputs, width, stride, norm)
        self.conv1.stride, self.conv2.stride = self.conv2.stride, self.conv1.stride


@register(kind="model")
def resnet50_keras(*, classes: int = 1000, **options: Any) -> ResNet:
    """ResNet-50 for 224 pixels, for the weights of Keras (see `fenchel models`)."""
    preprocessing: dict[str, Any] = {"mean": [mean / 255 for mean in MEANS], "std": 1 / 255}
    given = {name: value for name, value in options.items() if value is not None}
    network = ResNet(
        EarlyStride,
        (3, 4, 6, 3),
        (64, 128, 256, 512),
        stem="large",
        classes=classes,
        **preprocessing | given,
    )
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = EPSILON
    return network
