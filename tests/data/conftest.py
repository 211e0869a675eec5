import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("server", Path(__file__).with_name("server.py"))
_server = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_server)


@pytest.fixture
def server():
    with _server.serving() as script:
        yield script


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
