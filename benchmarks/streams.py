"""What a batch costs when 1, 10 and 100 streams share a network, in memory, on the disk and in threads.

    python benchmarks/streams.py [--batch-size 32] [--rounds 5] [--quick] [--json FILE]

Batches of all streams come in turn, so that the least recently used state is always the next one wanted:
the worst case for a cache. "In memory" keeps every state, "on the disk" a tenth of them, so that each batch
reads one file and writes another; "saved" keeps all and writes each after its batch, as `fenchel serve` does.
Ratios are to one session of the adapter, of the same run. The last rows are no measurements: they say what
two installations need at that cost.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

import fenchel
from common.measuring import interleaved_measures
from common.reporting import parser_of, publish
from fenchel.models import build
from fenchel.performance import retain_freed_memory

PROTOCOL = (
    "Thin ResNet-26, the default's step without its monitor, one thread of torch, freed memory kept as the "
    "`fenchel` command does; seconds of the clock per batch (medians) and ratios within interleaved rounds, "
    "with their range."
)
COUNTS = (1, 10, 100)
TURNS = 20
"""Batches per measurement, and at least one of each stream."""
THREADS = 2
CAMERAS, PILE = 1000, 100_000_000
"""Installations that are counted, not measured; a camera sends one image per second."""


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    retain_freed_memory()
    torch.manual_seed(0)
    # The monitor compares the first batches of every stream, of which there are few here.
    adapted = fenchel.adapt(
        build("resnet26").eval(), trained_with="poly:epsilon=6", method="protected", protect=False
    )
    batch = torch.rand(16 if options.quick else options.batch_size, 3, 32, 32)
    counts = (1, 2) if options.quick else COUNTS
    turns = 2 if options.quick else TURNS
    with tempfile.TemporaryDirectory() as name:
        rows = measured(adapted, batch, counts, turns, Path(name), options.rounds)
    publish("streams", PROTOCOL, [*rows, *installations(rows[-1], len(batch))], options)


def measured(
    adapted: fenchel.Adapter,
    batch: torch.Tensor,
    counts: tuple[int, ...],
    fewest: int,
    folder: Path,
    rounds: int,
) -> list[dict[str, Any]]:
    """One row per number of streams and way to keep them."""
    session = adapted.session()
    turns = {count: max(fewest, count) for count in counts}
    ways: dict[tuple[str, int], Callable[[], object]] = {
        ("one session", 1): lambda: [session(batch) for _ in range(turns[1])]
    }
    with ExitStack() as stack:
        for count in counts:
            for way, resident in _ways(count).items():
                place = folder / f"{way}-{count}"
                streams = fenchel.Streams(adapted, folder=place, resident=resident)
                key = (way, count)
                ways[key] = _turns(key, stack.enter_context(streams), batch, turns[count])
        measures = {
            key: lambda run=run, batches=turns[key[1]]: _seconds(run) / batches
            for key, run in ways.items()
        }
        timings = interleaved_measures(measures, rounds)
    size = max(path.stat().st_size for path in folder.rglob("*.safetensors"))
    return [
        {
            "streams": count,
            "states": way,
            "milliseconds_a_batch": 1000 * timing.median,
            "of_one_session": timing.over(timings["one session", 1]),
            "state_bytes": size,
        }
        for (way, count), timing in timings.items()
    ]


def _ways(count: int) -> dict[str, int]:
    """How states are kept, and how many of them in memory."""
    ways = {"in memory": count, "on the disk": max(1, count // 10)}
    if count == 1:
        del ways["on the disk"]  # it stays in memory
    return ways | {f"in memory, {THREADS} threads": count, "in memory, saved": count}


def installations(measured: dict[str, Any], batch_size: int) -> list[dict[str, Any]]:
    """What two installations need if cores are added without loss: the assumptions are those of the page."""
    seconds = measured["milliseconds_a_batch"] / 1000 / batch_size
    size = measured["state_bytes"]
    return [
        {
            "cameras": CAMERAS,
            "images_a_second": CAMERAS,
            "core_milliseconds_an_image": 1000 * seconds,
            "cores": CAMERAS * seconds,
            "all_states_bytes": CAMERAS * size,
            "written_a_second_bytes": CAMERAS / batch_size * size,
        },
        {
            "pile": f"{PILE:,} images",
            "core_milliseconds_an_image": 1000 * seconds,
            "core_days": PILE * seconds / 86_400,
            "hours_on_64_cores": PILE * seconds / 3600 / 64,
        },
    ]


def _turns(
    key: tuple[str, int], streams: fenchel.Streams, batch: torch.Tensor, turns: int
) -> Callable[[], object]:
    """Batches of all streams in turn."""
    way, count = key
    names = [f"stream-{turn % count}" for turn in range(turns)]

    def one(name: str) -> None:
        with streams.held(name) as stream:
            stream.session(batch)
            if way.endswith("saved"):
                stream.save()

    def several() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(one, names))

    def in_turn() -> None:
        for name in names:
            one(name)

    return several if "threads" in way else in_turn


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
