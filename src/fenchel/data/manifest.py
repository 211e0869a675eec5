"""The record beside corrupted files that were made here: which severities, how, and their md5."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fenchel.files import bad_file

FILE = "made-by-fenchel.json"


@dataclass(frozen=True, kw_only=True)
class Made:
    """How one corruption's file was made."""

    severities: tuple[int, ...]
    seed: int
    constants: str
    clean: str  # digest of the clean data set
    textures: str
    md5: str


def read_manifest(folder: Path) -> dict[str, Made]:
    """What was made in `folder`, by corruption; empty for public downloads."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        table = json.loads(path.read_text())
        return {name: _made(fields) for name, fields in table.items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        remedy = "Delete it and make the files again."
        raise bad_file(path, "must be a manifest of made files", str(error), remedy) from error


def _made(fields: Mapping[str, Any]) -> Made:
    severities = tuple(int(severity) for severity in fields["severities"])
    return Made(**{**fields, "severities": severities})


def write_manifest(folder: Path, made: Mapping[str, Made]) -> None:
    """Replace the manifest of `folder` in one step."""
    part = folder / f"{FILE}.part"
    part.write_text(json.dumps({name: asdict(made[name]) for name in sorted(made)}, indent=1))
    os.replace(part, folder / FILE)
