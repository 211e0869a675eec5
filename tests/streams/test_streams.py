"""Many streams by name: each as if it were alone, most of them on the disk."""

from __future__ import annotations

import gc
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters import AdaptationWarning, Adapter
from fenchel.streams import StreamFile, StreamStore

BATCHES, SIZE = 4, 20


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
    )


def adapter(method: str = "conjugate", **options: Any) -> Adapter:
    return fenchel.adapt(
        network(), trained_with="poly:epsilon=2", method=method, learning_rate=0.05, **options
    )


def batches(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(BATCHES, SIZE, 3, 8, 8, generator=generator)


def alone(adapted: Adapter, seed: int) -> list[Tensor]:
    session = adapted.session()
    return [session(batch) for batch in batches(seed)]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("conjugate", {"optimizer": "adam"}),
        ("conjugate", {"statistics": 0.2}),
        ("eta", {"margin": 1.0}),
        ("cotta", {"input_range": (0.0, 1.0), "views": 2}),
        ("protected", {"protect": "auto"}),
    ],
    ids=["adam", "mix", "eta", "cotta", "protected"],
)
def test_streams_in_threads_and_on_disk_equal_their_serial_runs_bit_for_bit(
    tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    count, threads = 12, 8
    adapted = adapter(method, **options)
    expected = [alone(adapted, seed) for seed in range(count)]
    steps = [seed for seed in range(count) for _ in range(BATCHES)]
    random.Random(0).shuffle(steps)
    found: list[list[Tensor]] = [[] for _ in range(count)]
    turns, lock = iter(steps), threading.Lock()
    in_order = [threading.Lock() for _ in range(count)]

    def work() -> None:
        while True:
            with lock:
                seed = next(turns, None)
            if seed is None:
                return
            with in_order[seed]:  # a stream's own batches come in order; streams in any
                found[seed].append(streams(f"s-{seed}", batches(seed)[len(found[seed])]))

    with fenchel.Streams(adapted, folder=tmp_path, resident=3) as streams:
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(work) for _ in range(threads)]:
                future.result()
        assert streams.in_memory <= 3
        assert {streams.health(name).batches for name in streams.names()} == {BATCHES}
    for mine, theirs in zip(found, expected, strict=True):
        assert all(map(torch.equal, mine, theirs))


def test_streams_survive_their_process_with_their_modes(tmp_path: Path) -> None:
    adapted = adapter(optimizer="adam")
    expected = alone(adapted, 0)
    with fenchel.Streams(adapted, folder=tmp_path) as streams:
        for batch in batches(0)[:2]:
            streams("north", batch)
        streams("south", batches(1)[0])
        with streams.held("south") as stream:
            stream.session.freeze()
            stream.notes["seen"] = [1, 2]
    with fenchel.Streams(adapter(optimizer="adam"), folder=tmp_path) as streams:
        assert streams.names() == ["north", "south"]
        assert all(map(torch.equal, [streams("north", x) for x in batches(0)[2:]], expected[2:]))
        assert streams.health("south").mode == "frozen"
        with streams.held("south") as stream:
            assert stream.notes == {"seen": [1, 2]}


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_what_watches_a_stream_goes_to_the_disk_with_it(tmp_path: Path) -> None:
    """Harm is judged, acted on and counted as if the state had never left the memory."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    adapted = fenchel.adapt(
        model,
        trained_with="cross-entropy",
        method="conjugate",
        protect="auto",
        parameters="all",
        learning_rate=0.02,
        steps=5,
    )
    session = adapted.session()
    met = torch.randn(6, 40, 4)
    for batch in met:
        session(batch)
    assert 0 < session.health().pulled_back < len(met)
    with fenchel.Streams(adapted, folder=tmp_path, resident=1) as streams:
        for batch in met:
            streams("harmed", batch)
            streams("other", met[0])  # puts the first one away
        with streams.held("harmed") as stream:
            found, expected = stream.session.state_dict(), session.state_dict()
    watched = [name for name in expected if name.startswith("watch.")]
    assert "watch.verdict" in watched
    assert any(name.startswith("watch.healthy.") for name in watched)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name].nan_to_num(), expected[name].nan_to_num()) for name in found)


def test_the_order_of_memory_comes_back_too(tmp_path: Path) -> None:
    """Kernels choose by it, so that bits depend on it."""
    model = network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    adapted = fenchel.adapt(model, trained_with="cross-entropy", parameters="all")
    with fenchel.Streams(adapted, folder=tmp_path, resident=1) as streams:
        streams("one", batches(0)[0])
        with streams.held("one") as stream:
            before = {name: tensor.stride() for name, tensor in stream.session.state_dict().items()}
        streams("two", batches(1)[0])
        with streams.held("one") as stream:
            after = {name: tensor.stride() for name, tensor in stream.session.state_dict().items()}
    assert before == after
    assert before["parameters.0.weight"] != torch.empty(8, 3, 3, 3).stride()


def test_memory_is_flat_however_many_streams_there_are(tmp_path: Path) -> None:
    adapted = adapter()
    with fenchel.Streams(adapted, folder=tmp_path, resident=2) as streams:
        for number in range(30):
            streams(f"s-{number}", batches(number)[0])
        gc.collect()
        assert streams.in_memory == 2
        assert len(adapted._sessions) == 3  # with the adapter's own
        assert len(streams._places) == 2
        assert len(streams) == 30


def test_a_state_on_its_way_to_the_disk_makes_room_for_one_and_no_other_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    begun, go_on = threading.Event(), threading.Event()
    write = StreamStore.write

    def slow(self: StreamStore, stream: StreamFile) -> None:
        written.append(stream.name)
        if stream.name == "one":
            begun.set()
            go_on.wait(20)
        write(self, stream)

    with fenchel.Streams(adapter(), folder=tmp_path, resident=2) as streams:
        for name in ("one", "two"):
            streams(name, batches(0)[0])
        monkeypatch.setattr(StreamStore, "write", slow)
        with ThreadPoolExecutor(1) as pool:
            third = pool.submit(streams, "three", batches(0)[0])
            assert begun.wait(60)
            streams("two", batches(0)[1])
            found = list(written)
            go_on.set()
            third.result(60)
        assert found == ["one"]
        assert streams.in_memory == 2


def test_a_stream_that_fails_touches_no_other_and_leaves_no_trace(tmp_path: Path) -> None:
    adapted = adapter()
    expected = alone(adapted, 0)
    with fenchel.Streams(adapted, folder=tmp_path, resident=1) as streams:
        found = []
        for batch in batches(0):
            found.append(streams("good", batch))
            with pytest.raises(RuntimeError):
                streams("bad", torch.rand(SIZE, 5, 8, 8))
            streams("mad", batch * float("nan"))
        assert all(map(torch.equal, found, expected))
        assert streams.names() == ["good", "mad"]
        assert streams.health("mad").left_out == SIZE * BATCHES
        with pytest.raises(ValueError, match="there is none called 'bad'"):
            streams.health("bad")


def test_a_file_that_cannot_be_used_stops_its_own_stream_alone(tmp_path: Path) -> None:
    adapted = adapter()
    with fenchel.Streams(adapted, folder=tmp_path) as streams:
        for name in ("whole", "cut"):
            streams(name, batches(0)[0])
        file = streams.store.file("cut")
    file.write_bytes(file.read_bytes()[:-7])
    with fenchel.Streams(adapted, folder=tmp_path) as streams:
        with pytest.raises(ValueError, match="is not whole"):
            streams("cut", batches(0)[1])
        assert streams.health("whole").batches == 1
        part = file.with_name(file.name + ".part")
        part.write_bytes(b"of a process that died")
        streams.forget("cut")
        assert streams.names() == ["whole"]
        assert not part.exists()
        streams("cut", batches(0)[0])
        assert streams.health("cut").batches == 1


def test_states_of_another_network_are_refused(tmp_path: Path) -> None:
    with fenchel.Streams(adapter(), folder=tmp_path) as streams:
        streams("one", batches(0)[0])
    other = fenchel.adapt(network(seed=1), trained_with="poly:epsilon=2", learning_rate=0.05)
    with (
        fenchel.Streams(other, folder=tmp_path) as streams,
        pytest.raises(ValueError, match="belongs to another network"),
    ):
        streams("one", batches(0)[0])


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with fenchel.Streams(adapter(), folder=tmp_path) as streams:
        with pytest.raises(ValueError, match="belongs to one process at a time"):
            fenchel.Streams(adapter(), folder=tmp_path)
        fenchel.Streams(adapter(), folder=tmp_path, owner="another-half").close()
        streams("one", batches(0)[0])
    with pytest.raises(RuntimeError, match="were closed"):
        streams("one", batches(0)[0])


def test_a_full_disk_keeps_states_in_memory_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted = adapter()
    expected = alone(adapted, 0)

    def full(self: StreamStore, stream: object) -> None:
        raise OSError("No space left on device")

    with fenchel.Streams(adapted, folder=tmp_path, resident=1) as streams:
        found = [streams("one", batches(0)[0])]
        with monkeypatch.context() as patch:
            patch.setattr(StreamStore, "write", full)
            with pytest.warns(AdaptationWarning, match="'one' stays in memory"):
                streams("two", batches(1)[0])
        found += [streams("one", batch) for batch in batches(0)[1:]]
    assert all(map(torch.equal, found, expected))


def test_a_reset_is_that_of_one_stream(tmp_path: Path) -> None:
    with fenchel.Streams(adapter(), resident=1) as streams:
        first = streams("one", batches(0)[0])
        streams("two", batches(0)[0])
        streams.reset("one")
        assert torch.equal(streams("one", batches(0)[0]), first)
        assert (streams.health("one").resets, streams.health("two").resets) == (1, 0)


@pytest.mark.parametrize(
    "name", ["", "a" * 101, "../up", "a/b", "a\\b", "a b", "ä", "a\n", "\0", "%2e%2e/x"]
)
def test_names_that_could_be_anything_else_are_refused(tmp_path: Path, name: str) -> None:
    with fenchel.Streams(adapter(), folder=tmp_path / "store") as streams:
        with pytest.raises(ValueError, match="a stream's name has"):
            streams(name, batches(0)[0])
        with pytest.raises(TypeError, match="is a string"):
            streams(7, batches(0)[0])  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.rglob("*")] == ["store", "streams.lock"]


@pytest.mark.parametrize("name", [".", "..", "-", "a.B_c-9", "CON"])
def test_odd_names_are_names_and_never_paths(tmp_path: Path, name: str) -> None:
    with fenchel.Streams(adapter(), folder=tmp_path / "store") as streams:
        streams(name, batches(0)[0])
        assert streams.names() == [name]
    files = {path.name for path in tmp_path.rglob("*.safetensors")}
    assert len(files) == 1
    assert files == {path.name for path in (tmp_path / "store").glob("*.safetensors")}


def test_many_requests_of_one_stream_are_one_batch() -> None:
    adapted = adapter()
    whole = adapted.session()(batches(0)[0])
    with fenchel.Streams(adapted) as streams, streams.gathering(most=SIZE, wait=60.0) as gathered:
        futures = [gathered.submit("one", part) for part in batches(0)[0].split(4)]
        answers = [future.result(timeout=60) for future in futures]
        assert streams.health("one").batches == 1
    assert torch.equal(torch.cat(answers), whole)


def test_the_end_waits_for_batches_under_way_and_keeps_them(tmp_path: Path) -> None:
    adapted = adapter()
    expected = alone(adapted, 0)
    streams = fenchel.Streams(adapted, folder=tmp_path, resident=1)
    streams("two", batches(1)[0])
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with streams.held("one") as stream:
            begun.set()
            assert go_on.wait(60)
            stream.session(batches(0)[0])

    with ThreadPoolExecutor(3) as pool:
        working = pool.submit(slow)
        assert begun.wait(60)
        late = pool.submit(streams, "one", batches(0)[1])  # waits for its turn, which never comes
        while streams._places["one"].users < 2:
            pass
        closing = pool.submit(streams.close)
        while not streams._closed:
            pass
        assert not closing.done()
        with pytest.raises(ValueError, match="belongs to one process at a time"):
            fenchel.Streams(adapted, folder=tmp_path)
        go_on.set()
        working.result(60)
        closing.result(60)
        with pytest.raises(RuntimeError, match="were closed"):
            late.result(60)
    with fenchel.Streams(adapted, folder=tmp_path) as streams:
        assert streams.names() == ["one", "two"]
        assert streams.health("one").batches == 1
        assert torch.equal(streams("one", batches(0)[1]), expected[1])


def test_an_end_that_cannot_save_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: StreamStore, stream: object) -> None:
        raise OSError("No space left on device")

    streams = fenchel.Streams(adapter(), folder=tmp_path)
    streams("one", batches(0)[0])
    with monkeypatch.context() as patch:
        patch.setattr(StreamStore, "write", full)
        with pytest.raises(OSError, match="No space left"):
            streams.close()
    streams("one", batches(0)[1])
    streams.close()
    with fenchel.Streams(adapter(), folder=tmp_path) as streams:
        assert streams.health("one").batches == 2


def test_one_state_of_memory_serves_many_threads_that_also_reset_and_forget(tmp_path: Path) -> None:
    """Whatever others do, a stream's numbers are those of its own batches since its last reset."""
    adapted = adapter()
    count = 6
    firsts = [alone(adapted, seed)[:2] for seed in range(count)]

    def work(seed: int) -> None:
        name = f"s-{seed}"
        for turn in range(6):
            for number in range(2):
                found = streams(name, batches(seed)[number])
                assert torch.equal(found, firsts[seed][number]), (seed, turn, number)
            if turn % 2:
                streams.reset(name)
                assert streams.health(name).batches == 2 * (turn % 2 + 1)
            else:
                streams.reset(name)
            if turn % 2:
                streams.forget(name)
                assert name not in streams

    with fenchel.Streams(adapted, folder=tmp_path, resident=1) as streams:
        with ThreadPoolExecutor(count) as pool:
            for future in [pool.submit(work, seed) for seed in range(count)]:
                future.result()
        assert len(streams) == 0
        assert streams.in_memory == 0
    assert list(tmp_path.glob("*.safetensors*")) == []


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_states_of_any_precision_come_back(tmp_path: Path, kind: torch.dtype) -> None:
    adapted = fenchel.adapt(network().to(kind), trained_with="poly:epsilon=2", learning_rate=0.05)
    given = batches(0).to(kind)
    session = adapted.session()
    expected = [session(batch) for batch in given]
    with fenchel.Streams(adapted, folder=tmp_path, resident=1) as streams:
        found = []
        for batch in given:
            found.append(streams("one", batch))
            with pytest.raises(RuntimeError):
                streams("two", batch.to(torch.float16))
            streams("two", batch)  # puts the first one away
    assert all(map(torch.equal, found, expected))


def test_a_call_without_a_sample_begins_nothing(tmp_path: Path) -> None:
    with fenchel.Streams(adapter(), folder=tmp_path) as streams:
        assert streams("one", batches(0)[0][:0]).shape == (0, 4)
        assert streams.names() == []


def test_names_are_found_in_the_beginnings_of_files(tmp_path: Path) -> None:
    """Of any length: its eight bytes may look like anything."""
    store = StreamStore(tmp_path)
    name = "a.B_c-9" + "x" * 93
    for length in range(0, 600, 8):
        file = StreamFile(
            name, "network", notes={"long": "x" * length}, tensors={"a": torch.ones(3)}
        )
        store.file(name).write_bytes(file.to_bytes())
        assert list(store.names()) == [name]
        assert dict(store.notes()) == {name: file.notes}
    store.file("cut").write_bytes(file.to_bytes())  # a copy under another's name
    (tmp_path / "other.safetensors").write_bytes(b"{" * 400)
    (tmp_path / f"{'0' * 32}.safetensors").touch()
    assert list(store.names()) == [name]
    store.file(name).write_bytes(file.to_bytes()[:310])
    assert (list(store.names()), dict(store.notes())) == ([name], {})
    store.close()
