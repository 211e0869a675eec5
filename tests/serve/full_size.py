"""The promises of docs/scale.md at their full size: minutes each, so they are no part of the suite.

python tests/serve/full_size.py streams   # 200 streams on 20 resident states, 8 threads, random order
python tests/serve/full_size.py service   # 32 clients for a minute, a replica killed every 10 seconds
python tests/serve/full_size.py requests  # 10,000 fuzzed requests to the real service
"""

from __future__ import annotations

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from fuzzed_requests import fuzzed
from hammered_service import ask, faults, hammer
from served_network import NETWORK

import fenchel
from fenchel.models import resnet26
from fenchel.predict.opening import Adaptation
from fenchel.serve.deployment import Running, start
from fenchel.serve.service import Service

STREAMS, RESIDENT, THREADS, BATCHES = 200, 20, 8, 5


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
    peaks = []

    def work() -> None:
        while True:
            with lock:
                stream = next(turns, None)
                done = sum(map(len, found))
                if done % 100 == 0:
                    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
            if stream is None:
                return
            with in_order[stream]:
                inputs = batch(stream, len(found[stream]))
                found[stream].append(streams(f"s-{stream}", inputs))

    with fenchel.Streams(adapted, folder=folder, resident=RESIDENT) as streams:
        with ThreadPoolExecutor(THREADS) as pool:
            for future in [pool.submit(work) for _ in range(THREADS)]:
                future.result()
        print(f"in memory {streams.in_memory}, peak in MiB over time {peaks}")
    for stream in range(STREAMS):
        session = adapted.session()
        for number, output in enumerate(found[stream]):
            assert torch.equal(session(batch(stream, number)), output), (stream, number)
    print(f"{STREAMS} streams of {BATCHES} batches equal their serial runs bit for bit")


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
    """No 500, no hang, no file outside the store."""
    parent = running.service.store.parent
    before = {path for path in parent.rglob("*") if running.service.store not in path.parents}
    statuses: Counter[int] = Counter()
    slowest, began = 0.0, time.monotonic()
    for seed in range(10_000):
        request = fuzzed(seed)
        headers = {name: value for name, value in request.headers.items() if value.isascii()}
        sent = time.monotonic()
        status, answer = ask(running, request.method, request.target, request.body, **headers)
        slowest = max(slowest, time.monotonic() - sent)
        statuses[status] += 1
        assert status < 500, (seed, request, answer)
    after = {path for path in parent.rglob("*") if running.service.store not in path.parents}
    assert {path for path in after - before if "__pycache__" not in path.parts} == set()
    took = time.monotonic() - began
    print(f"{dict(sorted(statuses.items()))} in {took:.0f} s, slowest {slowest:.2f} s")


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
