import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
