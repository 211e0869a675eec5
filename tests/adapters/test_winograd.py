"""Winograd's convolution is the convolution: values, gradients of every kind, and where it is not used."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fenchel
from fenchel.adapters import winograd
from fenchel.adapters.winograd import WIDE, WinogradConv2d, use_winograd


def layer_of(channels=WIDE, outputs=WIDE, **options):
    torch.manual_seed(0)
    options = {"kernel_size": 3, "padding": 1, "bias": False, **options}
    return nn.Conv2d(channels, outputs, **options).requires_grad_(False)


def swapped(layer):
    twin = nn.Conv2d(*layer.weight.shape[1::-1], 3, padding=1, bias=layer.bias is not None)
    twin.load_state_dict(layer.state_dict())
    twin.to(layer.weight.dtype).requires_grad_(False)
    use_winograd(twin)
    assert type(twin) is WinogradConv2d
    return twin


@pytest.fixture
def calls(monkeypatch):
    """The convolutions that were computed this way."""
    found = []
    convolved = winograd._convolved

    def counted(images, weight, *, mirrored):
        found.append(mirrored)
        return convolved(images, weight, mirrored=mirrored)

    monkeypatch.setattr(winograd, "_convolved", counted)
    return found


@pytest.mark.parametrize("shape", [(3, WIDE, 4, 4), (1, WIDE, 8, 12), (2, WIDE, 16, 4)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_in_float64_are_those_of_torch(shape, bias, memory, calls):
    layer = layer_of(outputs=WIDE + 8, bias=bias).double()
    images = torch.randn(shape, dtype=torch.float64).to(memory_format=memory)
    weights = torch.randn(shape[0], WIDE + 8, *shape[2:], dtype=torch.float64)
    found = []
    for each in (layer, swapped(layer)):
        leaf = images.clone().requires_grad_()
        output = each(leaf)
        (gradient,) = torch.autograd.grad((output * weights).sum(), leaf)
        found.append((output, gradient))
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
        assert bias or ours.is_contiguous(memory_format=torch.channels_last)
    assert calls == [False, True]


def test_rounding_in_float32_stays_small(calls):
    layer = layer_of()
    images = torch.randn(4, WIDE, 8, 8)
    exact = F.conv2d(images.double(), layer.weight.double(), padding=1)
    error = (swapped(layer)(images) - exact).abs().max() / exact.abs().max()
    assert error < 2e-5
    assert calls == [False]


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch's own, at the first tangent of a process
def test_tangents_and_second_derivatives_are_those_of_torch():
    layer = layer_of().double()
    images = torch.randn(1, WIDE, 4, 4, dtype=torch.float64)
    tangent = torch.randn_like(images)
    twin = swapped(layer)
    _, moved = torch.func.jvp(twin, (images,), (tangent,))
    torch.testing.assert_close(moved, layer(tangent), rtol=1e-11, atol=1e-11)

    def curvature(each):
        leaf = images.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(each(leaf).tanh().sum(), leaf, create_graph=True)
        return torch.autograd.grad((gradient * tangent).sum(), leaf)[0]

    torch.testing.assert_close(curvature(twin), curvature(layer), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    "options",
    [
        {"channels": WIDE - 1},
        {"outputs": 10},
        {"kernel_size": 1, "padding": 0},
        {"stride": 2},
        {"padding": 0},
        {"dilation": 2, "padding": 2},
        {"groups": 2},
        {"padding_mode": "circular"},
    ],
    ids=str,
)
def test_other_layers_are_left_alone(options):
    layer = layer_of(**options)
    use_winograd(layer)
    assert type(layer) is nn.Conv2d


def test_inputs_and_weights_that_do_not_suit_take_the_direct_way(calls):
    layer = layer_of()
    twin = swapped(layer)
    for images in (
        torch.randn(2, WIDE, 6, 8),
        torch.randn(2, WIDE, 7, 7),
        torch.randn(WIDE, 4, 4),
        torch.randn(2, WIDE, 4, 4).bfloat16(),
    ):
        same = layer.to(images.dtype)
        torch.testing.assert_close(twin.to(images.dtype)(images), same(images), rtol=0, atol=0)
    twin.float().weight.requires_grad_()
    twin(torch.randn(1, WIDE, 4, 4)).sum().backward()
    assert twin.weight.grad is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert twin(torch.randn(1, WIDE, 4, 4)).dtype == torch.bfloat16
    assert calls == []


def wide_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, WIDE, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(WIDE),
        nn.ReLU(),
        nn.Conv2d(WIDE, WIDE, 3, padding=1, bias=False),
        nn.BatchNorm2d(WIDE),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(WIDE, 5),
    ).double()


def test_an_adapter_adapts_alike_with_and_without_it(calls):
    model = wide_model()
    ways = [
        fenchel.adapt(
            model,
            method="conjugate",
            trained_with=fenchel.CrossEntropy(),
            learning_rate=0.1,
            winograd=on,
        )
        for on in (False, True)
    ]
    for _ in range(3):
        images = torch.rand(16, 3, 8, 8, dtype=torch.float64)
        expected, found = (adapter(images) for adapter in ways)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert calls == [False, True, False] * 3
    assert not any(isinstance(module, WinogradConv2d) for module in model.modules())


def test_a_disabled_adapter_is_the_model_bit_for_bit(calls):
    model = wide_model().float()
    adapter = fenchel.adapt(model, trained_with=fenchel.CrossEntropy())
    adapter.disable()
    images = torch.rand(8, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(adapter(images), model.eval()(images), rtol=0, atol=0)
    assert calls == []
