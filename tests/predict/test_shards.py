"""Several streams in one call: each as if it were alone, in this process or in Ray actors."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fenchel.predict import read_images
from fenchel.predict.shares import equal_shares

EACH = ("--batch-size", "32", "--learning-rate", "0.01", "--log", "log.jsonl")


def written(folder: Path) -> dict[str, bytes]:
    """All rows, logs and states, without the times in logs."""
    found = {}
    for path in sorted(folder.glob("*")):
        lines = path.read_bytes().split(b"\n")
        found[path.name] = b"\n".join(line.rpartition(b', "time"')[0] or line for line in lines)
    return found


@pytest.mark.parametrize("shuffle", [True, False, None])
def test_shares_are_the_pile_in_its_order(digits: Any, shuffle: bool | None) -> None:
    folder = digits.folder / "digits"
    read: dict[str, Any] = {"size": None, "mode": "L"}
    whole = read_images(folder, **read)
    parts = [share.read(**read, shuffle=shuffle, seed=3) for share in equal_shares(folder, 4)]
    order = whole.order(shuffle=shuffle, seed=3)
    names = [part.names[place] for part in parts for place in part.order(shuffle=shuffle, seed=3)]
    assert names == [whole.names[place] for place in order]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    first = whole.names.index(parts[1].names[0])
    assert np.array_equal(parts[1].read(0), whole.read(first))


def test_a_shard_equals_a_run_of_its_images_alone(
    digits: Any, command: Any, tmp_path: Path
) -> None:
    command(*digits.call("flat", *EACH, "--shards", "3", "--no-shuffle", "--json"))
    told = command.json()["streams"]
    assert [Path(each["predictions"]).name for each in told] == [
        f"predictions-{number}-of-3.csv" for number in range(3)
    ]
    names = read_images(digits.folder / "flat", mode="L").names
    middle = tmp_path / "middle"
    middle.mkdir()
    for name in names[199:398]:  # 598 images in three shares
        shutil.copy(digits.folder / "flat" / name, middle)
    call = digits.call("flat", *EACH, "--no-shuffle", "--out", "alone.csv", "--force")
    call[call.index("--images") + 1] = str(middle)
    command(*call)
    assert Path("alone.csv").read_bytes() == Path("predictions-1-of-3.csv").read_bytes()


def test_one_stream_per_folder(digits: Any, command: Any, tmp_path: Path) -> None:
    cameras = tmp_path / "cameras"
    for place, name in enumerate(sorted((digits.folder / "flat").iterdir())[:128]):
        folder = cameras / ("north" if place % 2 else "south")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, folder)
    call = digits.call("flat", *EACH, "--by-folder", "--json")
    call[call.index("--images") + 1] = str(cameras)
    told = command(*call).json()["streams"]
    assert [(Path(each["predictions"]).name, each["images"]) for each in told] == [
        ("predictions-north.csv", 64),
        ("predictions-south.csv", 64),
    ]


@pytest.mark.usefixtures("one_cluster_at_a_time")
def test_ray_actors_write_the_files_of_serial_runs_even_when_one_is_killed(
    digits: Any, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    files = []
    for executor in ("serial", "ray"):
        folder = tmp_path / executor
        folder.mkdir()
        monkeypatch.chdir(folder)
        call = digits.slow_call("--log", "log.jsonl", "--shards", "3", "--executor", executor)
        if executor == "ray":
            call += ["--at-once", "2", "--json"]
            killing = threading.Thread(target=kill_an_actor_at_work, args=(folder,))
            killing.start()
        command(*call)
        assert command.code == 0, command.err
        files.append(written(folder))
    assert len(command.json()["streams"]) == 3  # whatever Ray has to say of the death
    killing.join()
    assert (folder / "killed").exists()
    (folder / "killed").unlink()
    assert files[0].keys() == written(folder).keys()
    for name, content in files[0].items():
        assert files[1][name] == content, name


def kill_an_actor_at_work(folder: Path) -> None:
    """Kill the actor that writes a file of this test, once it has saved something."""
    state = folder / "predictions-0-of-3.csv.state.safetensors"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if state.exists():
            for process in Path("/proc").iterdir():
                if process.name.isdigit() and _writes_to(process, folder):
                    os.kill(int(process.name), signal.SIGKILL)
                    (folder / "killed").touch()
                    return
        time.sleep(0.02)


def _writes_to(process: Path, folder: Path) -> bool:
    """Whether a process, which is not this one, has the first shard's rows open."""
    if int(process.name) == os.getpid():
        return False
    try:
        opened = [os.readlink(link) for link in (process / "fd").iterdir()]
    except OSError:
        return False
    return str(folder / "predictions-0-of-3.csv") in opened


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--executor", "ray"), "Add --shards 2, or --by-folder."),
        (("--executor", "rays", "--shards", "2"), "'rays'. Did you mean 'ray'?"),
        (("--shards", "2", "--by-folder"), "Give one of them."),
        (("--shards", "2", "--at-once", "2"), "--at-once goes with --executor ray"),
        (("--by-folder",), "one stream per folder needs folders in --images"),
    ],
    ids=["one-stream", "unknown", "both", "at-once", "no-folders"],
)
def test_mistakes_about_streams_are_told_in_options(
    digits: Any, command: Any, options: tuple[str, ...], told: str
) -> None:
    command(*digits.call("flat", *options))
    assert command.code == 2
    assert told in command.err
