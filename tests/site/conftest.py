"""The site, built once for all tests of it, and a server that shows it to the browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. Workers of one run share it."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the site cannot be built; pip install 'fenchel[docs]'")
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, log = shared / "site", shared / "site.log"
    with FileLock(shared / "site.lock"):
        if not log.exists():
            _build(folder, log)
    assert folder.exists(), log.read_text(encoding="utf-8")
    return folder


def _build(folder: Path, log: Path) -> None:
    """As `make docs` does it. Whatever is said is a complaint: the build is quiet and strict."""
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if (done.returncode or said) and folder.exists():
        shutil.rmtree(folder)
    log.write_text(said or f"exit code {done.returncode}", encoding="utf-8")


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing about it."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served; search works over HTTP only."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
