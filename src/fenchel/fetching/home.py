"""Where fetched files live: `FENCHEL_HOME`, else the XDG cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The cache: `$FENCHEL_HOME`, else `$XDG_CACHE_HOME/fenchel`, else `~/.cache/fenchel`."""
    if chosen := os.environ.get("FENCHEL_HOME"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fenchel"
