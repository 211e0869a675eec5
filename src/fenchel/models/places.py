"""Where checkpoints are: a path, or `scheme:name` for places that have names of their own.

The zoo is one such place, the networks that were fetched another. Packages add more under the entry-point
group `fenchel.checkpoints`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fenchel.models import zoo
from fenchel.models.pretrained import registry as pretrained
from fenchel.names import Registry

RESOLVERS: Registry[Callable[[str], Path]] = Registry(
    "kind of checkpoint", group="fenchel.checkpoints"
)
"""Schemes of checkpoint names: `zoo:NAME` is the file that `RESOLVERS["zoo"]("NAME")` returns."""

RESOLVERS.add("zoo", zoo.path_of)
RESOLVERS.add(pretrained.SCHEME, pretrained.path_of)


def has_scheme(name: str) -> bool:
    """Whether `name` is written `scheme:name`, with a registered scheme."""
    scheme, colon, _ = name.partition(":")
    return bool(colon) and scheme in RESOLVERS


def resolve(name: str | Path, folder: Path = Path()) -> Path:
    """The file or folder that `name` means: `scheme:name`, or a path relative to `folder`."""
    text = str(name)
    if has_scheme(text):
        scheme, _, rest = text.partition(":")
        return RESOLVERS[scheme](rest)
    return folder / Path(name).expanduser()


def address(path: Path) -> str:
    """`zoo:NAME` or `pretrained:NAME` for files that have such a name on every machine; else the path."""
    return pretrained.address(path) or zoo.address(path)
