"""Published networks by name: what each is, how it was trained, where its weights come from.

`pretrained:resnet50` stands for one of them wherever a checkpoint is expected, once it was fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from fenchel.fetching.home import home
from fenchel.fetching.retrieval import Retrieval
from fenchel.names import Registry

SCHEME = "pretrained"
FILE = "checkpoint.safetensors"


@dataclass(frozen=True, kw_only=True)
class PretrainedEntry:
    """One published network.

    Attributes:
        what: one line for listings.
        architecture, arguments: what `build` takes.
        loss: the spec of the loss it was trained with.
        evidence: how that is known.
        error: its published top-1 error on ImageNet's validation images, in percent.
        recipe: how its files are fetched.
        read: (folder of these files) -> tensors by the names of the architecture.
        digest: SHA-256 of the weights, by name, shape and value, whatever file they came in.
        licence: what is known of the terms.
    """

    what: str
    architecture: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    loss: str
    evidence: str
    error: float
    recipe: Retrieval
    read: Callable[[Path], dict[str, Tensor]]
    digest: str
    licence: str


PRETRAINED: Registry[PretrainedEntry] = Registry(
    "pretrained network",
    group="fenchel.pretrained",
    package="fenchel.models.pretrained.networks",
)
"""Networks whose weights are fetched. A package adds its own through the group `fenchel.pretrained`."""


def folder() -> Path:
    """Where fetched networks lie: `models` in the cache."""
    return home() / "models"


def file_of(name: str) -> Path:
    """The checkpoint of a network, whether it is there or not."""
    PRETRAINED[name]  # an unknown name is told as such
    return folder() / name / FILE


def path_of(name: str) -> Path:
    """The checkpoint of a network that was fetched; for no name at all, the folder of all of them."""
    if not name:
        return folder()
    file = file_of(name)
    if not file.is_file():
        raise FileNotFoundError(
            f"{SCHEME}:{name} must be fetched once; {file} is not there. Run 'fenchel models fetch {name}'."
        )
    return file


def address(path: Path) -> str | None:
    """`pretrained:NAME` for the file of a fetched network, which means the same on every machine."""
    name = path.parent.name
    inside = path.name == FILE and path.parent.parent.resolve() == folder().resolve()
    return f"{SCHEME}:{name}" if inside and name in PRETRAINED else None
