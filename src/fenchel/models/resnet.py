"""Residual networks, from the thin CIFAR one to ResNet-50, with torchvision's names inside.

All are one class. The attribute names (`conv1`, `layer1.0.bn2`, `layer2.0.downsample.0`, `fc`)
are torchvision's, so its public weights load into `resnet18` and `resnet50` as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from fenchel.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD, PerChannel, for_channels
from fenchel.names import register, unknown

Normalization = Literal["batch", "group"]
NORMALIZATIONS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    # Pairs of channels at most: 32 groups from 64 channels on, as public GroupNorm ResNets have.
    "group": lambda channels: nn.GroupNorm(min(32, channels // 2), channels),
}


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _shortcut(
    inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]
) -> nn.Module | None:
    """A projection where the shape changes, nothing where it does not (option B)."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_convolution(inputs, outputs, 1, stride), norm(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(
        self, inputs: int, width: int, stride: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, width, 3, stride)
        self.bn1 = norm(width)
        self.conv2 = _convolution(width, width, 3)
        self.bn2 = norm(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) -> (batch, width, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += shortcut
        output: Tensor = self.relu(x)
        return output


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut; the 3x3 one strides, as in torchvision."""

    expansion = 4

    def __init__(
        self, inputs: int, width: int, stride: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _convolution(inputs, width, 1)
        self.bn1 = norm(width)
        self.conv2 = _convolution(width, width, 3, stride)
        self.bn2 = norm(width)
        self.conv3 = _convolution(width, outputs, 1)
        self.bn3 = norm(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) -> (batch, 4 width, h / stride, w / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += shortcut
        output: Tensor = self.relu(x)
        return output


class ResNet(nn.Module):
    """Stem, stages of residual blocks that halve the image from the second on, mean, linear.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: blocks in each stage.
        widths: channels of each stage (before the block's expansion).
        stem: "small" is one 3x3 convolution (28-32 px), "large" a strided 7x7 one and a pooling
            (224 px).
        classes: outputs of the last layer.
        channels: channels of the input images, which lie in [0, 1].
        normalization: "batch" or "group".
        mean, std: the preprocessing, one number or one per channel; the identity by default.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        *,
        stem: Literal["small", "large"],
        classes: int,
        channels: int = 3,
        normalization: Normalization = "batch",
        mean: PerChannel = None,
        std: PerChannel = None,
    ) -> None:
        super().__init__()
        if normalization not in NORMALIZATIONS:
            raise unknown("normalization", normalization, NORMALIZATIONS)
        norm = NORMALIZATIONS[normalization]
        self.preprocessing = for_channels(channels, mean, std)
        large = stem == "large"
        self.conv1 = _convolution(channels, widths[0], 7 if large else 3, 2 if large else 1)
        self.bn1 = norm(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        self.stages = [f"layer{number}" for number in range(1, len(widths) + 1)]
        inputs = widths[0]
        for name, depth, width in zip(self.stages, depths, widths, strict=True):
            blocks = []
            for position in range(depth):
                halve = position == 0 and name != "layer1"
                blocks.append(block(inputs, width, 2 if halve else 1, norm))
                inputs = width * block.expansion
            self.add_module(name, nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        self._initialize()

    def _initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        # Every block starts as its shortcut: large learning rates hold from the first step.
        for module in self.modules():
            if isinstance(module, BasicBlock | Bottleneck):
                last = module.bn2 if isinstance(module, BasicBlock) else module.bn3
                nn.init.zeros_(last.get_parameter("weight"))

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, channels, h, w) in [0, 1] -> logits (batch, classes)."""
        x = self.relu(self.bn1(self.conv1(self.preprocessing(images))))
        x = self.maxpool(x)
        for name in self.stages:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


@register(kind="model")
def resnet26(*, classes: int = 10, **options: Any) -> ResNet:
    """The thin ResNet-26 of the test-time adaptation literature: widths 16-32-64, 0.37 M."""
    return ResNet(BasicBlock, (4, 4, 4), (16, 32, 64), stem="small", classes=classes, **options)


@register(kind="model")
def resnet26_groupnorm(*, classes: int = 10, **options: Any) -> ResNet:
    """The thin ResNet-26 with GroupNorm, which needs no batch statistics."""
    return resnet26(classes=classes, normalization="group", **options)


@register(kind="model")
def resnet26_wide(*, classes: int = 10, **options: Any) -> ResNet:
    """The wide ResNet-26 of the conjugate pseudo-label paper: 64-128-256-512, 17.4 M."""
    widths = (64, 128, 256, 512)
    return ResNet(BasicBlock, (3, 3, 3, 3), widths, stem="small", classes=classes, **options)


@register(kind="model")
def resnet18_small(*, classes: int = 10, **options: Any) -> ResNet:
    """ResNet-18 with a 3x3 stem, for images of 28 to 32 pixels."""
    widths = (64, 128, 256, 512)
    return ResNet(BasicBlock, (2, 2, 2, 2), widths, stem="small", classes=classes, **options)


@register(kind="model")
def resnet50_small(*, classes: int = 10, **options: Any) -> ResNet:
    """ResNet-50 with a 3x3 stem, for images of 28 to 32 pixels."""
    widths = (64, 128, 256, 512)
    return ResNet(Bottleneck, (3, 4, 6, 3), widths, stem="small", classes=classes, **options)


def _large(
    block: type[BasicBlock] | type[Bottleneck], depths: Sequence[int], **options: Any
) -> ResNet:
    """A 224-px network; with three channels its preprocessing is that of ImageNet's weights."""
    if options.get("channels", 3) == 3:
        options = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD} | {
            key: value for key, value in options.items() if value is not None
        }
    return ResNet(block, depths, (64, 128, 256, 512), stem="large", **options)


@register(kind="model")
def resnet18(*, classes: int = 1000, **options: Any) -> ResNet:
    """ResNet-18 for 224 pixels; takes torchvision's public weights."""
    return _large(BasicBlock, (2, 2, 2, 2), classes=classes, **options)


@register(kind="model")
def resnet50(*, classes: int = 1000, **options: Any) -> ResNet:
    """ResNet-50 for 224 pixels; takes torchvision's public weights."""
    return _large(Bottleneck, (3, 4, 6, 3), classes=classes, **options)
