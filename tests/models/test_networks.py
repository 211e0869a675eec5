"""Every registered network: sizes, shapes, names, preprocessing."""

import sys

import pytest
import torch
from torch import nn

from fenchel import models

IMAGE_MODELS = [name for name in models.MODELS if name != "linear"]
CHANNELS = {"digit_network": 1}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        ("resnet26_wide", 10, 17_444_682),
        ("resnet18_small", 10, 11_173_962),
        ("resnet50_small", 10, 23_520_842),
        # The public figures of torchvision's networks.
        ("resnet18", 1000, 11_689_512),
        ("resnet50", 1000, 25_557_032),
        ("mobilenet_v2", 1000, 3_504_872),
        # That of the authors' EfficientNet-Lite0.
        ("efficientnet_lite0", 1000, 4_652_008),
    ],
)
def test_networks_have_their_published_number_of_parameters(name, classes, parameters):
    with torch.device("meta"):
        assert count(models.build(name, classes=classes)) == parameters


def test_the_thin_resnet26_has_three_stages_of_four_blocks():
    model = models.build("resnet26")
    assert 360_000 < count(model) < 380_000
    assert model.stages == ["layer1", "layer2", "layer3"]
    stages = [model.get_submodule(name) for name in model.stages]
    assert [len(stage) for stage in stages] == [4, 4, 4]
    assert [stage[-1].conv2.out_channels for stage in stages] == [16, 32, 64]
    weighted = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(weighted) + 1 == 26


@pytest.mark.parametrize("name", IMAGE_MODELS)
@torch.inference_mode()
def test_every_image_model_maps_images_to_logits(name):
    size = 64 if name in ("resnet18", "resnet50") else 32
    channels = CHANNELS.get(name, 3)
    model = models.build(name, classes=7, channels=channels).eval()
    logits = model(torch.rand(2, channels, size, size))
    assert logits.shape == (2, 7)
    assert logits.isfinite().all()
    assert isinstance(model.preprocessing, models.Preprocessing)
    assert model.preprocessing.input_range == (0.0, 1.0)


@pytest.mark.parametrize("name", ["resnet26", "digit_network", "vit_small", "resnet18"])
@torch.inference_mode()
def test_preprocessing_inside_equals_normalising_outside(name):
    torch.manual_seed(0)
    bare = models.build(name, classes=5, channels=3, mean=0.0, std=1.0).eval()
    inside = models.build(name, classes=5, channels=3, mean=(0.1, 0.2, 0.3), std=(0.5, 1, 2)).eval()
    state = {k: v for k, v in bare.state_dict().items() if not k.startswith("preprocessing")}
    inside.load_state_dict(state)  # strict: public weights lack nothing but our two buffers
    images = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 1, 2])
    outside = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    torch.testing.assert_close(inside(images), bare(outside))


def test_preprocessing_travels_with_the_state_dict():
    source = models.build("resnet26", mean=(0.1, 0.2, 0.3), std=0.5)
    target = models.build("resnet26")
    target.load_state_dict(source.state_dict())
    assert target.preprocessing.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert target.preprocessing.std.flatten().tolist() == [0.5, 0.5, 0.5]


def test_large_resnets_normalise_with_the_constants_of_imagenet():
    with_default = models.build("resnet18").preprocessing.describe()
    assert with_default["mean"] == pytest.approx([0.485, 0.456, 0.406])
    assert with_default["std"] == pytest.approx([0.229, 0.224, 0.225])


def test_resnet50_has_the_names_of_torchvision():
    with torch.device("meta"):
        names = set(models.build("resnet50").state_dict())
    assert {
        "conv1.weight",
        "bn1.running_mean",
        "layer1.0.downsample.0.weight",
        "layer3.5.conv3.weight",
        "layer4.2.bn3.bias",
        "fc.weight",
    } <= names
    # 161 parameters, and three buffers for each of 53 BatchNorm layers, beside our own two.
    assert len(names - {"preprocessing.mean", "preprocessing.std"}) == 161 + 3 * 53


def test_group_norm_variant_has_no_batch_norm():
    model = models.build("resnet26_groupnorm")
    kinds = [type(module) for module in model.modules()]
    assert nn.BatchNorm2d not in kinds
    assert kinds.count(nn.GroupNorm) == 27  # one a convolution, shortcuts included
    one = torch.rand(1, 3, 32, 32)
    pair = torch.cat([one, torch.rand(1, 3, 32, 32)])
    torch.testing.assert_close(model.train()(one), model(pair)[:1], atol=1e-5, rtol=1e-4)


def test_vision_transformer_normalises_with_layer_norm_alone():
    model = models.build("vit_small", depth=2)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(nn.LayerNorm) == 5
    assert not any(issubclass(kind, nn.modules.batchnorm._BatchNorm) for kind in kinds)


def test_linear_model_flattens_its_input():
    model = models.build("linear", features=12, classes=1)
    assert model(torch.rand(5, 3, 4)).shape == (5, 1)


@pytest.mark.parametrize("name", ["resnet26", "digit_network", "vit_small"])
def test_gradients_reach_every_parameter(name):
    torch.manual_seed(0)
    model = models.build(name, classes=3, channels=1)
    for parameter in model.parameters():  # blocks start as their shortcut: move off that point
        nn.init.normal_(parameter, std=0.1)
    model(torch.rand(4, 1, 32, 32)).square().sum().backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert still == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.build("resnet62"), "Did you mean 'resnet26'"),
        (lambda: models.build("resnet26", depth=3), "resnet26.*depth"),
        (lambda: models.build("resnet26", normalization="layer"), "unknown normalization"),
        (lambda: models.build("vit_small", image_size=30), "divides image_size"),
        (lambda: models.build("resnet26", mean=(0.1, 0.2)), "one number or 3"),
        (lambda: models.build("resnet26", std=0.0), "positive deviation"),
        (lambda: models.build("resnet26")(torch.rand(2, 32, 32, 3)), "Move the channels"),
        (lambda: models.build("vit_small")(torch.rand(2, 3, 28, 28)), "another image_size"),
        (lambda: models.build("timm/../etc/passwd"), "plain name"),
        (lambda: models.build("timm/hf_hub:someone/model"), "plain name"),
    ],
)
def test_mistakes_are_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"fenchel\[timm\]"):
        models.build("timm/resnet18")


@pytest.mark.parametrize(
    ("package", "name"), [("timm", "timm/resnet18"), ("torchvision", "torchvision/resnet18")]
)
def test_models_of_other_packages_take_plain_images(package, name, optional_package):
    optional_package(package)
    model = models.build(name, classes=4).eval()
    assert model(torch.rand(2, 3, 64, 64)).shape == (2, 4)
    bare = model.network.state_dict()
    models.load_weights(model, bare)
    models.load_weights(models.build("resnet18", classes=4), bare)
