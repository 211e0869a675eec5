"""EfficientNet-Lite0: inverted residual blocks without squeeze-and-excitation, as TensorFlow pads them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fenchel.models.preprocessing import PerChannel, for_channels
from fenchel.names import register

# Expansion, kernel, output channels, blocks and stride of the first block, stage by stage.
STAGES = (
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)
STEM, FEATURES = 32, 1280
EPSILON = 1e-3
# Pixels from 0 to 255 less 127, over 128.
MEAN, STD = 127 / 255, 128 / 255


class SamePadded(nn.Conv2d):
    """A convolution whose output has ceil(size / stride) pixels; the odd one of padding comes last.

    With stride 2 and even sizes that is one pixel more at the right and the bottom, which no symmetric
    padding gives.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) -> (batch, outputs, ceil(h / stride), ceil(w / stride))."""
        size, stride = self.kernel_size[0], self.stride[0]
        down, right = (
            max((-(-length // stride) - 1) * stride + size - length, 0) for length in x.shape[-2:]
        )
        if down or right:
            x = functional.pad(x, (right // 2, right - right // 2, down // 2, down - down // 2))
        return super().forward(x)


def _normalization(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=EPSILON, momentum=0.01)


class LiteBlock(nn.Module):
    """Widen by 1x1, filter every channel, narrow by 1x1; beside a shortcut where shapes agree."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand: nn.Module | None = None
        if expansion != 1:
            self.expand = SamePadded(inputs, hidden, 1, bias=False)
            self.bn0 = _normalization(hidden)
        self.depthwise = SamePadded(hidden, hidden, size, stride, groups=hidden, bias=False)
        self.bn1 = _normalization(hidden)
        self.project = SamePadded(hidden, outputs, 1, bias=False)
        self.bn2 = _normalization(outputs)
        self.relu = nn.ReLU6(inplace=True)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) -> (batch, outputs, h / stride, w / stride)."""
        output = x if self.expand is None else self.relu(self.bn0(self.expand(x)))
        output = self.relu(self.bn1(self.depthwise(output)))
        output = self.bn2(self.project(output))
        result: Tensor = x + output if self.has_shortcut else output
        return result


@register("efficientnet_lite0")
class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 for 224 pixels, 4.7 M.

    Args:
        classes: outputs of the last layer.
        channels: channels of the input images, which lie in [0, 1].
        mean, std: the preprocessing; 127 and 128 of 255 by default.
    """

    def __init__(
        self,
        *,
        classes: int = 1000,
        channels: int = 3,
        mean: PerChannel = None,
        std: PerChannel = None,
    ) -> None:
        super().__init__()
        self.preprocessing = for_channels(
            channels, MEAN if mean is None else mean, STD if std is None else std
        )
        self.stem = SamePadded(channels, STEM, 3, 2, bias=False)
        self.bn0 = _normalization(STEM)
        self.relu = nn.ReLU6(inplace=True)
        blocks, inputs = [], STEM
        for expansion, size, outputs, depth, stride in STAGES:
            for position in range(depth):
                first = stride if position == 0 else 1
                blocks.append(LiteBlock(inputs, outputs, size, first, expansion))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = SamePadded(inputs, FEATURES, 1, bias=False)
        self.bn1 = _normalization(FEATURES)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(FEATURES, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, 3, h, w) in [0, 1] -> logits (batch, classes)."""
        x = self.relu(self.bn0(self.stem(self.preprocessing(images))))
        x = self.relu(self.bn1(self.head(self.blocks(x))))
        logits: Tensor = self.fc(self.dropout(x.mean((2, 3))))
        return logits
