"""Many streams on one network: kept by name, most of them on the disk, requests gathered into batches."""

from __future__ import annotations

from fenchel.streams.gathering import MicroBatches, Request, TooBusy
from fenchel.streams.store import StreamFile, StreamStore, check_name
from fenchel.streams.stream import Stream
from fenchel.streams.streams import Streams

__all__ = [
    "MicroBatches",
    "Request",
    "Stream",
    "StreamFile",
    "StreamStore",
    "Streams",
    "TooBusy",
    "check_name",
]
