"""What the tests of the service share: the modules beside them, services and engines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from served_network import CLASSES, NETWORK, Client, client_of

from fenchel.predict.opening import Adaptation
from fenchel.serve.engine import Engine
from fenchel.serve.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """What `fenchel serve` would be told."""
    (tmp_path / "network.py").write_text(NETWORK)
    return Service(
        adaptation=Adaptation(
            model=f"{tmp_path / 'network.py'}:build",
            trained_with="cross-entropy",
            learning_rate=0.05,
            statistics="source",  # any batch will do
        ),
        classes=CLASSES,
        store=tmp_path / "store",
    )


@pytest.fixture
def engines() -> Iterator[Callable[..., Engine]]:
    """Makes engines, which are closed after the test."""
    made: list[Engine] = []

    def make(service: Service, number: int = 0) -> Engine:
        made.append(service.engine(number))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def client(service: Service, engines: Callable[..., Engine]) -> Client:
    return client_of(service, engines(service))
