"""A service in plain values: what runs it anywhere needs nothing else."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from fenchel.files import digest_of
from fenchel.plugins import Plugin
from fenchel.predict.comparing import SourcePredictions
from fenchel.predict.opening import Adaptation
from fenchel.serve.engine import Engine
from fenchel.serve.limits import Limits
from fenchel.serve.reading import ImageReader
from fenchel.streams import Streams

FORMER_OWNER_SECONDS = 30.0
"""A new replica waits so long for the end of the one before it, which may still be writing."""
TOKEN_VARIABLE = "FENCHEL_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Service:
    """What `fenchel serve` is told.

    Attributes:
        store: the folder of the streams' states, which all replicas see.
        replicas: processes that share the streams among them, each stream with one of them.
        resident: states that a replica keeps in memory.
        batch_size, wait, threads, save_every: see `Engine`.
        torch_threads: of one replica.
        token: what clients must send; None for anybody.
    """

    adaptation: Adaptation
    classes: tuple[str, ...] | None = None
    store: Path = Path("streams")
    replicas: int = 1
    resident: int = 100
    batch_size: int = 64
    wait: float = 0.0
    threads: int = 1
    torch_threads: int = 1
    save_every: int = 1
    source_predictions: SourcePredictions = "auto"
    limits: Limits = field(default_factory=Limits)
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    plugins: tuple[Plugin, ...] = ()

    def replica_of(self, name: str) -> int:
        """The number of the replica that has a stream, today and after any restart."""
        return int(digest_of(name), 16) % self.replicas

    def reader(self) -> ImageReader:
        """What reads the images of requests."""
        told = self.adaptation
        return ImageReader(size=told.size, mode=told.image_mode, limits=self.limits)

    def engine(self, number: int = 0) -> Engine:
        """The work of one replica, in this process."""
        import torch

        torch.set_num_threads(self.torch_threads)
        for plugin in self.plugins:
            plugin.load()
        opened = self.adaptation.open()
        streams = Streams(
            opened.adapter,
            folder=self.store,
            resident=self.resident,
            owner=f"replica-{number}-of-{self.replicas}",
            owns=lambda name: self.replica_of(name) == number,
            seconds=FORMER_OWNER_SECONDS,
        )
        return Engine(
            streams,
            classes=self.classes or opened.source.classes or None,
            limits=self.limits,
            source_predictions=self.source_predictions,
            batch_size=self.batch_size,
            wait=self.wait,
            threads=self.threads,
            save_every=self.save_every,
            device=self.adaptation.device,
        )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def token_from(file: Path | None) -> str | None:
    """The token in a file, or in the environment; never on a command line, where others see it."""
    text = os.environ.get(TOKEN_VARIABLE) if file is None else file.read_text("utf-8")
    if text is None:
        return None
    token = text.strip()
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"a token has at least 16 printable ASCII characters; got {len(token)} characters. Make one: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token
