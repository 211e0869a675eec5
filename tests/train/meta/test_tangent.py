"""Convolutions with fixed weights have the tangents of torch's own rule, at two thirds of the work."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from fenchel.train.meta.tangent import FixedConvolutions, duals

LAYERS = {
    "plain": lambda: nn.Conv2d(4, 6, 3),
    "strided": lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False),
    "grouped": lambda: nn.Conv2d(4, 8, 3, groups=2, dilation=2, padding="same"),
    "one dimension": lambda: nn.Conv1d(4, 6, 3, padding=1),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def dual(value, tangent):
    return duals({"it": value}, {"it": tangent})["it"]


def dual_output(layer, inputs, tangent):
    with torch.no_grad(), forward_ad.dual_level():
        return forward_ad.unpack_dual(layer(dual(inputs, tangent)))


def scene(name):
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    shape = (2, 4) + (9,) * (layer.weight.dim() - 2)
    return layer, torch.randn(shape).double(), torch.randn(shape).double()


@every_layer
def test_values_and_tangents_are_those_of_torch(name):
    layer, inputs, tangent = scene(name)
    expected = dual_output(layer, inputs, tangent)
    with FixedConvolutions():
        found = dual_output(layer, inputs, tangent)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_weights_that_move_are_left_to_torch():
    layer, inputs, tangent = scene("plain")
    with torch.no_grad(), forward_ad.dual_level():
        weight = dual(layer.weight, torch.randn_like(layer.weight))
        moving = dual(inputs, tangent)
        expected = forward_ad.unpack_dual(torch.conv2d(moving, weight)).tangent
        with FixedConvolutions():
            found = forward_ad.unpack_dual(torch.conv2d(moving, weight)).tangent
            keyword = forward_ad.unpack_dual(torch.conv2d(moving, weight=weight)).tangent
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(keyword, expected, rtol=0, atol=0)


def test_inputs_without_a_tangent_are_convolved_once():
    layer, inputs, _ = scene("plain")
    with torch.no_grad(), forward_ad.dual_level(), FixedConvolutions():
        value = layer(inputs)
        assert forward_ad.unpack_dual(value).tangent is None
    torch.testing.assert_close(value, layer(inputs).detach(), rtol=0, atol=0)
