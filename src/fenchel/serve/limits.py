"""What a request may ask for, and how it is refused."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 2**20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on requests. Beyond them they are refused, so that no client can exhaust the service.

    Attributes:
        request_bytes: of the body of a request.
        images: per request.
        pixels: of all images of a request together, as they are before they are resized.
        waiting: requests of one stream that may wait; `all_waiting` those of a replica.
        streams: how many a replica may have; names come from clients, and every stream takes a file.
        seconds: until a request is answered.
    """

    request_bytes: int = 16 * MEBIBYTE
    images: int = 256
    pixels: int = 16_000_000
    waiting: int = 8
    all_waiting: int = 64
    streams: int = 100_000
    seconds: float = 60.0


class Refused(Exception):
    """A request that cannot be served: the status of HTTP, and one line that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message
