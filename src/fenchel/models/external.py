"""Models of timm and torchvision by name, through the extras `timm` and `vision`."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
from collections.abc import Callable
from typing import Any

from torch import nn

from fenchel.models.preprocessing import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    PerChannel,
    Preprocessed,
    for_channels,
)
from fenchel.names import UnknownNameError

EXTRAS = {"timm": "timm", "torchvision": "vision"}
"""The packages whose models are known, and the extra that brings each."""

# Checkpoints name their architecture, so a name must never reach a hub, a folder or an address.
_NAME = re.compile(r"(?P<package>timm|torchvision)/(?P<model>[A-Za-z0-9_.]+)")


def is_external(name: str) -> bool:
    """Whether `name` reads `timm/...` or `torchvision/...`."""
    return name.partition("/")[0] in EXTRAS and "/" in name


def with_slash(spec: str) -> str:
    """`timm/NAME` for `timm:NAME`, which command lines know as well; anything else as it is."""
    package, colon, rest = spec.partition(":")
    return f"{package}/{rest}" if colon and package in EXTRAS else spec


def factory(name: str) -> Callable[..., nn.Module]:
    """The function that builds `timm/NAME` or `torchvision/NAME`; see `create`."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            "a model of another package is written timm/NAME or torchvision/NAME with a plain "
            f"name; got {name!r}. Take the name from that package's list of models."
        )
    return functools.partial(create, match["package"], match["model"])


def create(
    package: str,
    model: str,
    *,
    classes: int = 1000,
    channels: int = 3,
    pretrained: bool = False,
    mean: PerChannel = None,
    std: PerChannel = None,
) -> nn.Module:
    """The model `model` of `package`, wrapped so that it takes images in [0, 1].

    Mean and deviation default to those the package's weights were trained with. `pretrained`
    lets the package download its weights.
    """
    module = _import(package)
    _require_known(module, package, model)
    if package == "timm":
        network = module.create_model(
            model, pretrained=pretrained, num_classes=classes, in_chans=channels
        )
        settings = getattr(network, "pretrained_cfg", None) or {}
    else:
        if channels != 3:
            raise ValueError(f"torchvision's models take 3 channels; got {channels}. Use timm's.")
        weights = "DEFAULT" if pretrained else None
        network = module.models.get_model(model, weights=weights, num_classes=classes)
        settings = {}
    default_mean = settings.get("mean", IMAGENET_MEAN) if channels == 3 else None
    default_std = settings.get("std", IMAGENET_STD) if channels == 3 else None
    return Preprocessed(
        network,
        for_channels(
            channels,
            default_mean if mean is None else mean,
            default_std if std is None else std,
        ),
    )


def published(package: str) -> list[str]:
    """The checkpoints that a package publishes, `timm/MODEL.TAG`; none where it cannot be imported."""
    try:
        module = _import(package)
    except ImportError:
        return []
    if package == "timm":
        return [f"timm/{name}" for name in module.list_pretrained()]
    models = module.models
    return [
        f"torchvision/{name}.{weights.name}"
        for name in models.list_models(module=models)
        for weights in models.get_model_weights(name)
    ]


def _require_known(module: Any, package: str, model: str) -> None:
    listing = module if package == "timm" else module.models
    known = listing.list_models()
    if model.partition(".")[0] not in known:  # timm names the weights behind a dot
        nearest = difflib.get_close_matches(model, known, n=1, cutoff=0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise UnknownNameError(
            f"{package} has no model {model!r}.{hint} {package}.{'' if package == 'timm' else 'models.'}"
            "list_models() names them all."
        )


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError) as error:
        # torchvision built for another torch fails with a RuntimeError, not an ImportError.
        raise ImportError(
            f"models named {package}/... need the package {package}, which cannot be imported "
            f"({error}). Install it with: pip install 'fenchel[{EXTRAS[package]}]'."
        ) from error
