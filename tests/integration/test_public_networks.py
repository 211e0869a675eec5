"""Networks of timm, torchvision and transformers, without weights: the adapter is TENT on each of them.

What TENT does is written out below in plain torch, and shares nothing with the library under test.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fenchel

CLASSES = 5
RATE = 0.05
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# The variants of timm and transformers derive from torch's own layers.
NORMALIZATION = (*BATCH_NORM, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class Network:
    """How a network is built, which side its images have, and how many normalisation layers it has."""

    package: str
    build: Callable[[ModuleType], nn.Module]
    layers: int
    size: int = 32


def of_timm(name: str, layers: int, **options: Any) -> Network:
    return Network(
        "timm",
        lambda timm: timm.create_model(name, pretrained=False, num_classes=CLASSES, **options),
        layers,
        options.get("img_size", 32),
    )


def of_torchvision(name: str, layers: int, **options: Any) -> Network:
    return Network(
        "torchvision",
        lambda torchvision: getattr(torchvision.models, name)(num_classes=CLASSES, **options),
        layers,
    )


def of_transformers(name: str, layers: int, **options: Any) -> Network:
    def build(transformers: ModuleType) -> nn.Module:
        config = getattr(transformers, f"{name}Config")(num_labels=CLASSES, **options)
        return getattr(transformers, f"{name}ForImageClassification")(config)

    return Network("transformers", build, layers)


SMALL_TRANSFORMER = {
    "image_size": 32, "patch_size": 8, "hidden_size": 48, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 3,
}  # fmt: skip

# Normalisation layers are counted from the architecture (stem + blocks + shortcuts + last), so that a kind
# of layer that both sides of the comparison overlook is noticed too.
NETWORKS = {
    "timm resnet": of_timm("resnet18", 1 + 16 + 3),
    "timm efficientnet": of_timm("efficientnet_b0", 2 + 2 + 15 * 3),
    "timm vit": of_timm("vit_tiny_patch16_224", 24 + 1, img_size=32),
    "timm distilled": of_timm("deit_tiny_distilled_patch16_224", 24 + 1, img_size=32),
    "timm convnext": of_timm("convnext_atto", 1 + 12 + 3 + 1),
    "timm swin": of_timm(
        "swin_tiny_patch4_window7_224", 1 + 24 + 3 + 1, img_size=64, window_size=2, embed_dim=48
    ),
    "timm mixer": of_timm("mixer_s32_224", 16 + 1, img_size=64),
    "timm group norm": of_timm("resnetv2_18", 16 + 1, norm_layer="groupnorm"),
    "torchvision resnet": of_torchvision("resnet18", 1 + 16 + 3),
    "torchvision mobilenet": of_torchvision("mobilenet_v2", 1 + 2 + 16 * 3 + 1),
    "torchvision vit": of_torchvision(
        "VisionTransformer", 4 + 1, image_size=32, patch_size=8, num_layers=2, num_heads=3,
        hidden_dim=48, mlp_dim=96,
    ),
    "transformers vit": of_transformers("ViT", 4 + 1, **SMALL_TRANSFORMER),
    "transformers convnext": of_transformers(
        "ConvNext", 1 + 5 + 3 + 1, depths=[1, 1, 2, 1], hidden_sizes=[16, 24, 32, 48]
    ),
    "transformers resnet": of_transformers(
        "ResNet", 1 + 8 + 3, embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1],
        layer_type="basic",
    ),
}  # fmt: skip


@pytest.fixture
def make(
    optional_package: Callable[[str], ModuleType],
) -> Callable[..., tuple[nn.Module, list[Tensor]]]:
    """A network and two batches for it."""

    def make(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, list[Tensor]]:
        network = NETWORKS[name]
        model = trained_looking(network.build(optional_package(network.package)).to(dtype))
        # Fewer than 16 images bring a warning where statistics are those of the batch.
        count = 16 if any(isinstance(m, BATCH_NORM) for m in model.modules()) else 4
        images = torch.rand(2, count, 3, network.size, network.size, dtype=dtype)
        return model, [images[0], images[1] * 0.5 + 0.4]

    return make


@torch.no_grad()
def trained_looking(model: nn.Module) -> nn.Module:
    """Move all tensors off their start, where scales and heads are zero and blocks do nothing."""
    for parameter in model.parameters():
        spread = 0.2 if parameter.ndim < 2 else 0.5 * parameter[0].numel() ** -0.5
        parameter.add_(torch.randn_like(parameter), alpha=spread)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.uniform_(-0.2, 0.2)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    return model


def logits_of(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


class Tent:
    """A step of TENT on every batch, then the prediction of that batch."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.layers = [m for m in self.model.modules() if isinstance(m, NORMALIZATION)]
        for layer in self.layers:
            layer.requires_grad_(True)
            if isinstance(layer, BATCH_NORM):
                layer.training = True  # not train(), which would reach the layers inside
        moving = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(moving, RATE, momentum=0.9, nesterov=True)

    def __call__(self, batch: Tensor) -> Tensor:
        logits = logits_of(self.model(batch))
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        self.optimizer.zero_grad()
        entropy.backward()
        self.optimizer.step()
        with torch.no_grad():
            prediction = logits_of(self.model(batch))
        self.change = (prediction - logits.detach()).abs().max()
        return prediction

    def moved(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """A block that must leave the model as it was, bit for bit."""
    next(model.children()).eval()  # flags that differ from layer to layer are to stay so
    values = copy.deepcopy(model.state_dict())
    flags = [module.training for module in model.modules()]
    assert True in flags
    yield
    assert [module.training for module in model.modules()] == flags
    assert model.state_dict().keys() == values.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, values[name]), name
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def check_against_tent(model: nn.Module, batches: list[Tensor]) -> Tent:
    tolerance = TOLERANCE[batches[0].dtype]
    tent = Tent(model)
    adapted = fenchel.adapt(model, trained_with="cross-entropy", learning_rate=RATE, protect=False)
    with untouched(model):
        for batch in batches:
            torch.testing.assert_close(
                logits_of(adapted(batch)), tent(batch), rtol=0, atol=tolerance
            )
    mine = adapted.state.parameters
    assert mine.keys() == tent.moved().keys()
    for name, value in tent.moved().items():
        torch.testing.assert_close(mine[name], value, rtol=0, atol=tolerance, msg=name)
    assert adapted.health().updates == len(batches)
    return tent


@pytest.mark.parametrize("name", NETWORKS)
def test_cross_entropy_is_tent_on_a_public_network(name: str, make: Callable[..., Any]) -> None:
    model, batches = make(name)
    tent = check_against_tent(model, batches)
    assert len(tent.layers) == NETWORKS[name].layers
    assert tent.change > 1e-3, "a step must show, or the comparison says nothing"


# Of deeper networks without their weights, plain torch's own single and double precision differ by more
# than the tolerance: their batch statistics magnify rounding.
@pytest.mark.parametrize("name", ["timm resnet", "timm group norm", "timm vit"])
def test_the_faster_single_precision_is_tent_too(name: str, make: Callable[..., Any]) -> None:
    check_against_tent(*make(name, torch.float32))


@pytest.mark.parametrize("name", ["transformers vit", "transformers resnet"])
def test_a_hugging_face_network_takes_its_keyword_and_returns_its_own_output(
    name: str, make: Callable[..., Any]
) -> None:
    model, (batch, _) = make(name)
    adapted = fenchel.adapt(model, trained_with="cross-entropy", learning_rate=RATE, protect=False)
    output = adapted(pixel_values=batch, output_hidden_states=True)
    torch.testing.assert_close(output.logits, Tent(model)(batch), rtol=0, atol=1e-9)
    theirs = model(pixel_values=batch, output_hidden_states=True)
    assert type(output) is type(theirs)
    assert len(output.hidden_states) == len(theirs.hidden_states)
