"""The state of a service as Prometheus reads it: plain text, one line per number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
VERDICTS = ("healthy", "suspect", "collapsed")

_COUNTERS = {
    "batches": "Batches met by a stream.",
    "samples": "Images met by a stream.",
    "updates": "Updates of a stream.",
    "skips": "Updates of a stream that were left out.",
    "left_out": "Images of a stream that were not finite.",
    "resets": "Resets of a stream.",
    "pulled_back": "Times that suspect parameters of a stream were drawn back to the source's.",
    "fell_back": "Batches of a stream that the source model predicted in the place of a harmful one.",
}
_GAUGES = {
    "known": ("fenchel_streams", "Streams that there are, by replica."),
    "in_memory": ("fenchel_streams_in_memory", "States in memory, by replica."),
    "waiting": ("fenchel_requests_waiting", "Requests that wait, by replica."),
}


def prometheus_text(replicas: Sequence[Mapping[str, Any] | None], requests: Counter[int]) -> str:
    """The text for the overviews of all replicas (None for one that does not answer).

    Args:
        replicas: see `Engine.overview`.
        requests: how many ended with each status of HTTP, in the process that answers.
    """
    streams = [row for replica in replicas if replica for row in replica["streams"]]
    lines: list[str] = []
    for key, about in _COUNTERS.items():
        rows = ((f'stream="{row["stream"]}"', row[key]) for row in streams)
        lines += _family(f"fenchel_stream_{key}_total", "counter", about, rows)
    verdicts = (
        (f'stream="{row["stream"]}",verdict="{verdict}"', int(row["verdict"] == verdict))
        for row in streams
        for verdict in VERDICTS
    )
    lines += _family("fenchel_stream_verdict", "gauge", "1 for the verdict on a stream.", verdicts)
    for key, (name, about) in _GAUGES.items():
        found = (
            (f'replica="{place}"', replica[key])
            for place, replica in enumerate(replicas)
            if replica
        )
        lines += _family(name, "gauge", about, found)
    up = ((f'replica="{place}"', int(bool(replica))) for place, replica in enumerate(replicas))
    lines += _family("fenchel_replica_up", "gauge", "1 for a replica that answers.", up)
    statuses = ((f'status="{status}"', count) for status, count in sorted(requests.items()))
    lines += _family("fenchel_requests_total", "counter", "Requests by their status.", statuses)
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, about: str, rows: Iterable[tuple[str, float]]) -> list[str]:
    return [
        f"# HELP {name} {about}",
        f"# TYPE {name} {kind}",
        *(f"{name}{{{labels}}} {value}" for labels, value in rows),
    ]
