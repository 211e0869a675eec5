"""The streams of a preset: what its lines are run on, where that is more than one shift after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fenchel.bench.sweep import StreamChoice


@dataclass(frozen=True, kw_only=True)
class LineStream:
    """One kind of stream, for every line of a preset.

    Attributes:
        title: `continual`, `batch size 1`.
        protocol: what it changes of `StreamChoice`.
        portion: the share of a scale's images per shift that it takes, where a shift comes several times or
            a batch holds one image.
        data, corruptions, severities: other than the line's; None for the line's own.
    """

    title: str
    protocol: Mapping[str, Any] = field(default_factory=dict)
    portion: float = 1.0
    data: str | None = None
    corruptions: tuple[str, ...] | None = None
    severities: tuple[int, ...] | None = None

    @staticmethod
    def of(facts: Mapping[str, Any]) -> LineStream:
        """The stream that a table of a TOML file describes."""
        own: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in facts.items()
        }
        known = [each.name for each in fields(LineStream)]
        protocol = {name: own.pop(name) for name in facts if name not in known}
        return LineStream(protocol=protocol, **own)

    def choice(self, batch_size: int) -> StreamChoice:
        """The protocol as a sweep takes it."""
        return StreamChoice(**{"batch_size": batch_size, **self.protocol})

    def limit(self, images: int | None) -> int | None:
        """Images per shift, of those that a scale has."""
        return None if images is None else max(1, round(images * self.portion))

    @property
    def joins_shifts(self) -> bool:
        """Whether all shifts make one stream."""
        return bool(self.protocol.get("setting", "reset") != "reset")


ONE_BY_ONE = LineStream(title="reset")
"""One shift after the other, the adapter reset before each."""
