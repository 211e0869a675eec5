"""A stream in several processes is the stream in one: real gloo ranks against one process, in float64."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fenchel
from fenchel.adapters.group import Group

sys.path.insert(0, str(Path(__file__).parent))

from shared_stream import CASES, names_of

SCRIPT = Path(__file__).with_name("shared_stream.py")
Outcome = Callable[[int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return _told_by(2, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def three_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return _told_by(3, tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """What each of so many ranks has to tell; they are started once."""
    return lambda size: request.getfixturevalue({2: "two_ranks", 3: "three_ranks"}[size])


def _told_by(size: int, folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(size), str(folder)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    files = [folder / f"{rank}.json" for rank in range(size - 1)]  # the last one ends in the middle
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(
    ("size", "case"), [(size, case) for size in (2, 3) for case in names_of(size)]
)
def test_ranks_equal_one_process(outcome: Outcome, size: int, case: str) -> None:
    found = outcome(size)[0][case]
    assert found["parameters"] < 1e-10
    assert found["everything"] < 1e-8
    assert found["logits"] < 1e-8
    assert found["classes"]
    assert found["health"] == found["expected_health"]
    assert found["same_bits"]


@pytest.mark.parametrize("case", CASES)
def test_the_streams_that_are_compared_move_something(outcome: Outcome, case: str) -> None:
    found = outcome(2)[0][case]
    assert found["moved"] > 1e-5  # far beyond what is taken for equal
    assert found["health"]["updates"] > 5  # eta keeps no sample of many batches


@pytest.mark.parametrize("case", ["harm", "harm in one step"])
def test_the_harm_that_is_compared_is_noticed_and_undone(outcome: Outcome, case: str) -> None:
    assert outcome(2)[0][case]["health"]["pulled_back"] > 0


def test_samples_that_are_not_finite_are_counted_wherever_they_are(outcome: Outcome) -> None:
    for found in outcome(2):
        assert found["conjugate, broken images"]["same_bits"]
    health = outcome(2)[0]["conjugate, broken images"]["health"]
    assert health["left_out"] == 1 + 7 + 13


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_go_on_from_the_state_of_one_process_in_any_mode(outcome: Outcome, size: int) -> None:
    for found in outcome(size):
        assert found["other modes"] < 1e-10


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        ("method", "Own does not"),
        ("compile", "compile=True"),
        ("streams", "without group="),
        ("shapes", "rank 1 differs from rank 0"),
        ("one value", "batch statistics need more than one value per channel"),
    ],
)
def test_what_cannot_be_shared_is_refused_on_every_rank(
    outcome: Outcome, attempt: str, told: str, size: int
) -> None:
    for found in outcome(size):
        assert told in found["refusals"][attempt]


@pytest.mark.parametrize("size", [2, 3])
def test_the_death_of_a_rank_is_told_and_nobody_waits(outcome: Outcome, size: int) -> None:
    for rank, found in enumerate(outcome(size)):
        assert f"all {size} processes of a group must live" in found["lost"]
        assert f"rank {rank}" in found["lost"]


@pytest.mark.parametrize("method", ["protected", "conjugate"])
def test_one_rank_is_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """So its steps are those of an adapter without a group: the same bits, no message, no cost."""
    network = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    batches = torch.randn(3, 40, 4)
    alone = fenchel.adapt(network, trained_with="cross-entropy", method=method)
    dist.init_process_group("gloo", f"file://{tmp_path / 'store'}", world_size=1, rank=0)
    try:
        adapted = fenchel.adapt(
            network, trained_with="cross-entropy", method=method, group=dist.group.WORLD
        )
        for message in ("all_gather", "all_reduce", "all_gather_object", "barrier"):
            monkeypatch.delattr(dist, message)
        for name in ("gathered", "summed", "whole"):
            monkeypatch.delattr(Group, name)
        assert adapted.settings == alone.settings
        assert adapted.settings.group is None
        for batch in batches:
            assert torch.equal(adapted(batch), alone(batch))
        found, expected = adapted.state_dict(), alone.state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)
    finally:
        dist.destroy_process_group()


def test_a_group_is_one_of_torch() -> None:
    with pytest.raises(TypeError, match="got int"):
        Group.of(-100)  # what torch gives to a process that is not in a new group
