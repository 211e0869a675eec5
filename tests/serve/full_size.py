"""The promises of docs/scale.md at their full size: minutes each, so they are no part of the suite.

python tests/serve/full_size.py streams   # 200 streams on 20 resident states, 8 threads, random order
python tests/serve/full_size.py service   # 32 clients for a minute, a replica killed every 10 seconds
python tests/serve/full_size.py requests  # 10,000 fuzzed requests to the real service, 1,000 that are no HTTP
"""

from __future__ import annotations

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import random
import re
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

import torch

sys.path.insert(0, str(Path(__file__).parent))

from fuzzed_requests import fuzzed, malformed
from hammered_service import ask, faults, hammer, send_bytes
from served_network import NETWORK

import fenchel
from fenchel.models import resnet26
from fenchel.predict.opening import Adaptation
from fenchel.serve.deployment import Running, start
from fenchel.serve.service import Service

STREAMS, RESIDENT, THREADS, BATCHES = 200, 20, 8, 5
REQUESTS, MALFORMED, CLIENTS = 10_000, 1_000, 4
SLOWEST = 30.0
"""Seconds after which a request hangs."""


def many_streams(folder: Path) -> None:
    """Every stream equals its own serial run bit for bit, and memory does not grow."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    adapted = fenchel.adapt(resnet26(classes=10).eval(), trained_with="poly:epsilon=6")

    def batch(stream: int, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * stream + number)
        return torch.rand(16, 3, 32, 32, generator=generator)

    steps = [stream for stream in range(STREAMS) for _ in range(BATCHES)]
    random.Random(0).shuffle(steps)
    turns, lock = iter(steps), threading.Lock()
    in_order = [threading.Lock() for _ in range(STREAMS)]
    found: list[list[torch.Tensor]] = [[] for _ in range(STREAMS)]
    sizes: list[float] = []  # of memory, as batches go by

    def work() -> None:
        while True:
            with lock:
                stream = next(turns, None)
                sizes.append(mebibytes())
            if stream is None:
                return
            with in_order[stream]:
                inputs = batch(stream, len(found[stream]))
                found[stream].append(streams(f"s-{stream}", inputs))

    with fenchel.Streams(adapted, folder=folder, resident=RESIDENT) as streams:
        with ThreadPoolExecutor(THREADS) as pool:
            for future in [pool.submit(work) for _ in range(THREADS)]:
                future.result()
        in_memory = streams.in_memory
    quarters = [fmean(sizes[len(sizes) * k // 4 : len(sizes) * (k + 1) // 4]) for k in range(4)]
    print(
        f"{in_memory} in memory; MiB of the process by quarters of the run: {quarters}", flush=True
    )
    assert in_memory == RESIDENT
    assert quarters[3] < 1.1 * quarters[1]
    for stream in range(STREAMS):
        session = adapted.session()
        for number, output in enumerate(found[stream]):
            assert torch.equal(session(batch(stream, number)), output), (stream, number)
    print(f"{STREAMS} streams of {BATCHES} batches equal their serial runs bit for bit")


def mebibytes() -> float:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def served(folder: Path) -> Running:
    (folder / "network.py").write_text(NETWORK)
    return start(
        Service(
            adaptation=Adaptation(
                model=f"{folder / 'network.py'}:build",
                trained_with="cross-entropy",
                statistics="source",
            ),
            store=folder / "store",
            replicas=2,
            resident=4,
            port=8123,
        )
    )


def hammered(running: Running) -> None:
    """No answer is lost or crossed, and every counter is what was acknowledged."""
    told = hammer(running, clients=32, streams=40, seconds=60.0, kill_every=10.0)
    found = faults(running, told)
    answered = sorted(told.seconds)
    print(f"{len(answered)} requests, {told.kills} kills, statuses {dict(told.statuses)}")
    print(f"median {answered[len(answered) // 2]:.3f} s, slowest {answered[-1]:.1f} s")
    assert found == [], found[:5]
    print("no answer was lost or crossed; all counters are those that were acknowledged")


def fuzzed_requests(running: Running) -> None:
    """No 500, no hang, no file outside the store; all of them to the real service, four at a time."""
    store = running.service.store
    before = outside(store)

    def send(seed: int) -> tuple[float, list[int]]:
        request, sent = fuzzed(seed), time.monotonic()
        headers = {name: value for name, value in request.headers.items() if value.isascii()}
        status, answer = ask(running, request.method, request.target, request.body, **headers)
        assert status < 500, (seed, request, answer)
        return time.monotonic() - sent, [status]

    def send_malformed(seed: int) -> tuple[float, list[int]]:
        sent = time.monotonic()
        found = send_bytes(running, malformed(seed))
        assert all(status < 500 for status in found), (seed, malformed(seed)[:200], found)
        return time.monotonic() - sent, found or [0]

    for what, count in ((send, REQUESTS), (send_malformed, MALFORMED)):
        began = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as pool:
            told = list(pool.map(what, range(count)))
        statuses = Counter(status for _, found in told for status in found)
        seconds, slowest = time.monotonic() - began, max(took for took, _ in told)
        print(f"{count} of {what.__name__} in {seconds:.0f} s, slowest {slowest:.2f} s")
        print(f"statuses, 0 for none: {dict(sorted(statuses.items()))}")
        assert slowest < SLOWEST
    assert outside(store) == before
    files = [path for path in store.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert all(re.fullmatch(r"[0-9a-f]{32}\.safetensors", path.name) for path in files), files
    assert ask(running, "GET", "/healthz")[0] == 200
    assert all(ask(running, "GET", "/v1/streams")[1]["replicas"])
    print(f"{len(files)} files in the store, none outside it; all replicas answer")


def outside(store: Path) -> set[Path]:
    """The files beside the store."""
    return {
        path
        for path in store.parent.rglob("*")
        if path != store and store not in path.parents and "__pycache__" not in path.parts
    }


def main(what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        if what == "streams":
            many_streams(Path(name))
            return
        running = served(Path(name))
        try:
            {"service": hammered, "requests": fuzzed_requests}[what](running)
        finally:
            running.stop()


if __name__ == "__main__":
    main(sys.argv[1])
