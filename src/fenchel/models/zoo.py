"""The zoo: small trained networks that come with the library, each with a card and tuned settings.

`zoo:cifar10-resnet26-poly` stands for one of them wherever a checkpoint is expected.
"""

from __future__ import annotations

from pathlib import Path

from fenchel.names import unknown

SUFFIX = ".safetensors"
_INSTALLED = Path(__file__).parents[1] / "zoo"
_IN_THE_REPOSITORY = Path(__file__).parents[3] / "zoo"


def folder() -> Path:
    """Where the files are: inside the installed package, or beside the sources."""
    return _INSTALLED if _INSTALLED.is_dir() else _IN_THE_REPOSITORY


def names() -> tuple[str, ...]:
    """The networks in it, sorted; a name with a dot is that of something else about a network."""
    found = (file.stem for file in folder().glob(f"*{SUFFIX}"))
    return tuple(sorted(name for name in found if "." not in name))


def path_of(name: str) -> Path:
    """The file of one network; for no name at all, the folder of all of them."""
    if not name:
        return folder()
    if name not in names():
        raise unknown("network of the zoo", name, names())
    return folder() / f"{name}{SUFFIX}"


def address(path: Path) -> str:
    """`zoo:NAME` for a file of the zoo, which means the same on every machine; else the path as it is."""
    inside = path.suffix == SUFFIX and path.parent.resolve() == folder().resolve()
    return f"zoo:{path.stem}" if inside else str(path)
