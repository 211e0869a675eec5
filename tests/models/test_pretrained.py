"""Published networks are read without running code, and compute what their authors' code computes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fenchel.data import load
from fenchel.fetching.retrieval import RemoteFile, Retrieval
from fenchel.losses import parse
from fenchel.models import MODELS, PRETRAINED, build, load_checkpoint, load_weights, open_model
from fenchel.models.places import address
from fenchel.models.pretrained.fetch import assemble, fetch, fetch_entry
from fenchel.models.pretrained.networks.efficientnet_lite0 import renamed as renamed_lite
from fenchel.models.pretrained.networks.resnet50 import renamed
from fenchel.models.pretrained.registry import PretrainedEntry, file_of
from fenchel.models.pretrained.tfjs import read_tfjs
from fenchel.wnids import wnids

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("name", list(PRETRAINED))
def test_an_entry_says_all_that_is_needed(name: str) -> None:
    entry = PRETRAINED[name]
    assert entry.architecture in MODELS
    parse(entry.loss)
    assert entry.evidence
    assert entry.licence
    assert 20 < entry.error < 35
    assert len(entry.digest) == 64
    assert entry.recipe.files or entry.recipe.mirrors


# The format of TensorFlow.js


def write_tfjs(
    folder: Path, tensors: dict[str, np.ndarray], shards: int = 2, **facts: object
) -> Path:
    """`model.json` and its shards, which are cut without regard to where a tensor ends."""
    weights = [
        {"name": name, "shape": list(value.shape), "dtype": "float32", **facts}
        for name, value in tensors.items()
    ]
    content = b"".join(value.astype("<f4").tobytes() for value in tensors.values())
    step = -(-len(content) // shards)
    paths = [f"group1-shard{number + 1}of{shards}" for number in range(shards)]
    for number, path in enumerate(paths):
        (folder / path).write_bytes(content[number * step : (number + 1) * step])
    model = folder / "model.json"
    model.write_text(json.dumps({"weightsManifest": [{"paths": paths, "weights": weights}]}))
    return model


def test_tensors_are_read_across_shards(tmp_path: Path) -> None:
    tensors = {
        "a/kernel": RANDOM.normal(size=(3, 3, 2, 5)).astype(np.float32),
        "a/bias": RANDOM.normal(size=5).astype(np.float32),
        "scale": np.float32(2.5).reshape(()),
    }
    found = read_tfjs(write_tfjs(tmp_path, tensors, shards=4))
    assert list(found) == list(tensors)
    for name, value in tensors.items():
        np.testing.assert_array_equal(found[name].numpy(), value)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "group1-shard2of2").write_bytes(b"12"), "lists tensors of 16 bytes"),
        (lambda f: (f / "model.json").write_text("<html>gone"), "an HTML page"),
        (lambda f: (f / "model.json").write_text("{}"), "weightsManifest"),
        (
            lambda f: write_tfjs(f, {"a": np.zeros(4, np.float32)}, quantization={"scale": 1}),
            "a of float32, quantized",
        ),
        (lambda f: write_tfjs(f, {"a": np.zeros(4, np.float32)}, dtype="string"), "a of string"),
        (
            lambda f: (f / "model.json").write_text(
                json.dumps({"weightsManifest": [{"paths": ["../x"], "weights": []}]})
            ),
            "leads outside",
        ),
    ],
)
def test_a_damaged_or_hostile_model_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    write_tfjs(tmp_path, {"a": np.zeros(4, np.float32)})
    damage(tmp_path)
    with pytest.raises(ValueError, match=words):
        read_tfjs(tmp_path / "model.json")


# Keras' ResNet-50, against its definition written down plainly


BLOCKS = {2: "abc", 3: "abcd", 4: "abcdef", 5: "abc"}
WIDTHS = {2: 64, 3: 128, 4: 256, 5: 512}


def keras_weights() -> dict[str, Tensor]:
    """Random weights under Keras' names, in its layout: kernels are (height, width, inputs, outputs)."""
    weights: dict[str, Tensor] = {}

    def layer(name: str, norm: str, size: int, inputs: int, outputs: int) -> None:
        fan = size * size * inputs
        weights[f"{name}/kernel"] = torch.randn(size, size, inputs, outputs) * (2 / fan) ** 0.5
        weights[f"{name}/bias"] = torch.randn(outputs) / 10
        weights[f"{norm}/gamma"] = torch.rand(outputs) + 0.5
        weights[f"{norm}/beta"] = torch.randn(outputs) / 10
        weights[f"{norm}/moving_mean"] = torch.randn(outputs) / 10
        weights[f"{norm}/moving_variance"] = torch.rand(outputs) + 0.5

    layer("conv1", "bn_conv1", 7, 3, 64)
    inputs = 64
    for stage, letters in BLOCKS.items():
        width = WIDTHS[stage]
        for letter in letters:
            shapes = {
                "2a": (1, inputs, width),
                "2b": (3, width, width),
                "2c": (1, width, 4 * width),
            }
            if letter == "a":
                shapes["1"] = (1, inputs, 4 * width)
            for branch, shape in shapes.items():
                tail = f"{stage}{letter}_branch{branch}"
                layer(f"res{tail}", f"bn{tail}", *shape)
            inputs = 4 * width
    weights["fc1000/kernel"] = torch.randn(2048, 1000) / 50
    weights["fc1000/bias"] = torch.randn(1000) / 10
    return weights


def as_keras_defines_it(weights: dict[str, Tensor], images: Tensor) -> Tensor:
    """The network on RGB images in [0, 1], layer by layer, without a module."""

    def layer(x: Tensor, name: str, norm: str, stride: int = 1, padding: int = 0) -> Tensor:
        kernel = weights[f"{name}/kernel"].permute(3, 2, 0, 1)
        x = functional.conv2d(x, kernel, weights[f"{name}/bias"], stride, padding)
        mean, variance = weights[f"{norm}/moving_mean"], weights[f"{norm}/moving_variance"]
        scale, offset = weights[f"{norm}/gamma"], weights[f"{norm}/beta"]
        return functional.batch_norm(x, mean, variance, scale, offset, eps=1e-3)

    blue_first = 255 * images.flip(1)
    x = blue_first - torch.tensor([103.939, 116.779, 123.68]).view(3, 1, 1)
    x = layer(x, "conv1", "bn_conv1", 2, 3).relu()
    x = functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, letters in BLOCKS.items():
        for letter in letters:
            stride = 2 if letter == "a" and stage > 2 else 1
            tail = f"{stage}{letter}_branch"
            shortcut = x
            if letter == "a":
                shortcut = layer(x, f"res{tail}1", f"bn{tail}1", stride)
            x = layer(x, f"res{tail}2a", f"bn{tail}2a", stride).relu()
            x = layer(x, f"res{tail}2b", f"bn{tail}2b", 1, 1).relu()
            x = (layer(x, f"res{tail}2c", f"bn{tail}2c") + shortcut).relu()
    return x.mean((2, 3)) @ weights["fc1000/kernel"] + weights["fc1000/bias"]


def test_resnet50_computes_what_keras_defines() -> None:
    weights = keras_weights()
    model = build("resnet50_keras").eval()
    load_weights(model, renamed(weights))
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        ours, theirs = model(images), as_keras_defines_it(weights, images)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.std()))


def test_layers_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match="'block1_conv1'"):
        renamed({"block1_conv1/kernel": torch.zeros(3, 3, 3, 64)})


# The two others, against those who publish them


def test_mobilenet_has_torchvisions_names_and_computes_the_same(
    optional_package: Callable[[str], ModuleType],
) -> None:
    theirs = optional_package("torchvision").models.mobilenet_v2(weights=None).eval()
    ours = build("mobilenet_v2").eval()
    load_weights(ours, theirs.state_dict())
    images = torch.rand(2, 3, 64, 64)
    mean, std = (
        torch.tensor(x).view(3, 1, 1) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs((images - mean) / std))


def test_efficientnet_lite_computes_what_timm_does(
    optional_package: Callable[[str], ModuleType],
) -> None:
    timm = optional_package("timm")
    theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    ours = build("efficientnet_lite0").eval()
    own = {n: v for n, v in ours.state_dict().items() if not n.startswith("preprocessing")}
    given = theirs.state_dict()
    assert [value.shape for value in own.values()] == [value.shape for value in given.values()]
    load_weights(ours, dict(zip(own, given.values(), strict=True)))
    assert sum(isinstance(module, nn.BatchNorm2d) for module in ours.modules()) == 49
    for size in (64, 97):  # even and odd sizes are padded differently
        images = torch.rand(2, 3, size, size)
        with torch.no_grad():
            torch.testing.assert_close(ours(images), theirs((255 * images - 127) / 128))


def test_names_of_the_package_become_ours() -> None:
    own = build("efficientnet_lite0").state_dict()
    kinds = {"expand": "_expand_conv", "depthwise": "_depthwise_conv", "project": "_project_conv"}
    kinds |= {"stem": "_conv_stem", "head": "_conv_head", "blocks": "_blocks", "fc": "_fc"}
    kinds |= {f"bn{number}": f"_bn{number}" for number in range(3)}
    for name in own:
        if not name.startswith("preprocessing"):
            theirs = ".".join(kinds.get(part, part) for part in name.split("."))
            assert renamed_lite(theirs) == name


# Fetching


class Small:
    """A published network of our own: a file on the loopback server, and its entry."""

    def __init__(self, folder: Path, url: str) -> None:
        torch.manual_seed(1)
        self.model = build("digit_network", channels=3, width=4, classes=1000)
        torch.save(self.model.state_dict(), folder / "small.pth")
        self.content = (folder / "small.pth").read_bytes()
        remote = RemoteFile(
            file="small.pth", md5=hashlib.md5(self.content).hexdigest(), urls=(f"{url}/small.pth",)
        )
        self.entry = PretrainedEntry(
            what="a small one",
            architecture="digit_network",
            arguments={"channels": 3, "width": 4, "classes": 1000},
            loss="poly:epsilon=6",
            evidence="we say so",
            error=50.0,
            recipe=Retrieval(source="loopback", files=(remote,)),
            read=lambda folder: torch.load(folder / "small.pth", weights_only=True),
            digest="",
            licence="ours",
        )
        (folder / "read").mkdir()
        (folder / "read" / "small.pth").write_bytes(self.content)
        digest = assemble("small", self.entry, folder / "read").digest
        self.entry = replace(self.entry, digest=digest)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any) -> Small:
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    (tmp_path / "origin").mkdir()
    found = Small(tmp_path / "origin", server.url)
    server.files["small.pth"] = found.content
    monkeypatch.setitem(PRETRAINED._things, "small", found.entry)
    return found


def get(said: list[str] | None = None, **changes: Any) -> Path:
    """Fetch the small network, told what is said, with changes to its entry."""
    force = changes.pop("force", False)
    entry = replace(PRETRAINED["small"], **changes)
    say = (lambda text: None) if said is None else said.append
    return fetch_entry("small", entry, file_of("small"), force=force, say=say)


def test_a_fetched_network_is_a_checkpoint_that_knows_its_loss(small: Small) -> None:
    file = get()
    assert [path.name for path in file.parent.iterdir()] == ["checkpoint.safetensors"]
    opened = open_model("pretrained:small")
    assert opened.loss_spec == "poly:epsilon=6"
    assert opened.classes == wnids()
    assert opened.metadata.data == "imagenet"
    assert address(file) == "pretrained:small"
    for name, value in small.model.state_dict().items():
        torch.testing.assert_close(opened.model.state_dict()[name], value)


def test_what_is_there_is_left_alone_unless_it_is_damaged_or_forced(
    small: Small, server: Any
) -> None:
    file = get()
    said: list[str] = []
    get(said)
    assert "already" in said[-1]
    get(said, force=True)
    file.write_bytes(b"not a checkpoint")
    get(said)
    assert "SHA-256 of the weights verified" in said[-1]
    assert len(server.requests) == 3


def test_other_weights_under_the_same_name_are_refused(small: Small) -> None:
    with pytest.raises(ValueError, match="must have the SHA-256 0000"):
        get(digest="0" * 64)
    assert not file_of("small").exists()


def test_a_download_that_broke_off_is_resumed(small: Small, server: Any) -> None:
    server.break_after += [1000, 2000]
    load_checkpoint(get())
    assert [asked for _, asked in server.requests] == [None, "bytes=1000-", "bytes=3000-"]


def test_before_it_is_fetched_the_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="Run 'fenchel models fetch resnet50'"):
        open_model("pretrained:resnet50")
    with pytest.raises(ValueError, match="Did you mean 'resnet50'"):
        open_model("pretrained:resnet_50")


@pytest.mark.skipif(
    not os.environ.get("FENCHEL_NETWORK_TESTS"), reason="FENCHEL_NETWORK_TESTS is not set"
)
@pytest.mark.parametrize("name", list(PRETRAINED))
def test_the_real_weights_arrive_as_they_are_known(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path))
    assert load_checkpoint(fetch(name)).digest == PRETRAINED[name].digest


MOST_WRONG = {"mobilenet-v2": 32, "resnet50": 26, "efficientnet-lite0": 28}


@pytest.mark.skipif(
    not os.environ.get("FENCHEL_SHARED_DATA"), reason="FENCHEL_SHARED_DATA is not set"
)
@pytest.mark.parametrize("name", MOST_WRONG)
def test_the_real_weights_recognise_real_images(name: str) -> None:
    if not file_of(name).is_file():
        pytest.skip(f"fenchel models fetch {name} was not run")
    images = load("imagenet", root=Path(os.environ["FENCHEL_SHARED_DATA"]) / "imagenet")
    model = open_model(f"pretrained:{name}").model
    wrong, chosen = 0, np.arange(0, len(images), 2)  # one image per class
    for some in np.array_split(chosen, 20):
        pixels = torch.from_numpy(images.images(some)).permute(0, 3, 1, 2) / 255
        with torch.no_grad():
            wrong += int((model(pixels).argmax(-1).numpy() != images.labels[some]).sum())
    assert 100 * wrong / len(chosen) < MOST_WRONG[name]
