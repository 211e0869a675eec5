"""Wide 3 x 3 convolutions with fixed weights by Winograd's algorithm F(4 x 4, 3 x 3), on a CPU.

A tile of 4 x 4 outputs takes 36 multiplications per pair of channels and not 144. The three linear maps
around them (of a 6 x 6 input tile, of the weights, of the products) are products with small constant
matrices, which pay once channels are many. The result is the same polynomial of the inputs: equal but for
rounding, which in float32 is eleven to fifteen times as large. PyTorch's own CPU convolutions are
direct; those of a GPU choose this algorithm by themselves.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDE = 160
"""Channels, in and out, from which the products saved outweigh the transforms."""
OUTPUT, TILE = 4, 6
"""Pixels along the side of a tile, after and before the convolution."""

_OF_INPUT = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_OF_WEIGHT = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_OF_OUTPUT = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)


def use_winograd(twin: nn.Module) -> nn.Module:
    """Run the wide 3 x 3 convolutions of a skeleton (see `normalization`) so where their input allows it."""
    for module in twin.modules():
        if type(module) is nn.Conv2d and _is_wide(module):
            module.__class__ = WinogradConv2d
    return twin


def _is_wide(layer: nn.Conv2d) -> bool:
    return (
        layer.kernel_size == (3, 3)
        and layer.stride == layer.dilation == (1, 1)
        and layer.padding in ((1, 1), "same")
        and layer.padding_mode == "zeros"
        and layer.groups == 1
        and min(layer.in_channels, layer.out_channels) >= WIDE
    )


class WinogradConv2d(nn.Conv2d):
    """A convolution that falls back to torch's own where its input or its weights do not suit."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        if not _suits(input, weight):
            direct: Tensor = super()._conv_forward(input, weight, bias)
            return direct
        output: Tensor = _Convolution.apply(input, weight, False)  # type: ignore[no-untyped-call]
        return output if bias is None else output + bias[:, None, None]


def _suits(images: Tensor, weight: Tensor) -> bool:
    return (
        images.ndim == 4
        and images.device.type == weight.device.type == "cpu"
        and images.dtype == weight.dtype
        and images.dtype in (torch.float32, torch.float64)
        and all(size > 0 and size % OUTPUT == 0 for size in images.shape[2:])
        and not weight.requires_grad
        and not torch.is_autocast_enabled("cpu")
    )


class _Convolution(torch.autograd.Function):
    """`mirrored` is the transpose of the convolution: a convolution by the mirrored weights."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, mirrored: bool) -> Tensor:
        return _convolved(images, weight, mirrored=mirrored)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, weight, ctx.mirrored = inputs
        ctx.save_for_backward(weight)
        ctx.save_for_forward(weight)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        gradient = _Convolution.apply(incoming[0], weight, not ctx.mirrored)  # type: ignore[no-untyped-call]
        return gradient, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (weight,) = ctx.saved_tensors
        moved: Tensor = _Convolution.apply(tangents[0], weight, ctx.mirrored)  # type: ignore[no-untyped-call]
        return moved


def _convolved(images: Tensor, weight: Tensor, *, mirrored: bool) -> Tensor:
    """(N, C, H, W) by (O, C, 3, 3), or (N, O, H, W) by the transpose; channels-last memory."""
    count, _, height, width = images.shape
    down, across = height // OUTPUT, width // OUTPUT
    of_input, of_weight, of_output = _transforms(images.dtype)
    padded = F.pad(images.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1))
    tiles = padded.unfold(1, TILE, OUTPUT).unfold(2, TILE, OUTPUT)  # (N, down, across, C, 6, 6)
    seen = _on_both_sides(of_input, tiles.permute(4, 5, 0, 1, 2, 3))
    kernel = of_weight.flip(1) if mirrored else of_weight
    factors = _on_both_sides(kernel, weight.permute(2, 3, 0, 1)).view(-1, *weight.shape[:2])
    if not mirrored:
        factors = factors.transpose(1, 2)
    products = seen.view(TILE * TILE, count * down * across, -1).bmm(factors)
    outputs = _on_both_sides(of_output, products.view(TILE, TILE, -1))
    by_tile = outputs.view(OUTPUT, OUTPUT, count, down, across, -1)
    by_pixel = by_tile.permute(2, 3, 0, 4, 1, 5).contiguous()  # one tile per image: else a view
    return by_pixel.view(count, height, width, -1).permute(0, 3, 1, 2)


def _on_both_sides(matrix: Tensor, tiles: Tensor) -> Tensor:
    """M t M^T for every tile t: (s, s, ...) -> (m, m, K)."""
    size, side = matrix.shape
    rows = matrix @ tiles.reshape(side, -1)
    return matrix @ rows.view(size, side, -1)


@cache
def _transforms(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The maps of a side of an input tile, of the weights, of the products."""
    maps = (_OF_INPUT, _OF_WEIGHT, _OF_OUTPUT)
    of_input, of_weight, of_output = (torch.tensor(rows, dtype=dtype) for rows in maps)
    return of_input, of_weight, of_output
