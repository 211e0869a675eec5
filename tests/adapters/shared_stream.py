"""A group, run by test_group.py: its ranks adapt to their shares of some streams.

    python shared_stream.py SIZE FOLDER

They are forked where that can be done, after what takes longest: the imports. Rank 0 runs every stream by
itself as well, on whole batches and without a group, and compares.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.distributed as dist
from torch import Tensor, nn

import fenchel
from fenchel.adapters import Adapter
from fenchel.adapters.group import Group

CLASSES, LONG, SHORT = 4, 30, 9
SHAPE = (3, 6, 6)


class BatchNormed(nn.Module):
    """Two ways that join, each with a batch normalisation."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6, **options)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.other_norm = nn.BatchNorm2d(6, **options)
        self.head = nn.Linear(6 * 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        x = x + self.other_norm(self.second(x)).relu()
        return self.head(x.view(x.size(0), -1))  # refuses a batch of no sample, as many networks do


class InHalves(BatchNormed):
    """Every image becomes two rows, as the frames of a film do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6 * 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x.reshape(-1, 3, 3, 6))).relu()
        x = x + self.other_norm(self.second(x)).relu()
        return self.head(x.flatten(1)).unflatten(0, (-1, 2)).mean(1)


def layer_normed() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(108, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, CLASSES)
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "batch": BatchNormed,
    "layer": layer_normed,
    "in halves": InHalves,
    "no statistics": lambda: BatchNormed(track_running_stats=False),
}


def network(kind: str) -> nn.Module:
    """With weights large enough for sure predictions."""
    torch.manual_seed(3)
    made = NETWORKS[kind]().double()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2.5)
    return made.eval()


def batches(count: int, *, in_runs: bool = False, broken: bool = False) -> list[Tensor]:
    """Images about one pattern per class, of a stream that drifts; batches of 13, 2 and 5."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.rand(CLASSES, *SHAPE, generator=generator, dtype=torch.float64)
    found = []
    for number in range(count):
        size = {count - 3: 2, count - 1: 5}.get(number, 13)
        labels = torch.randint(CLASSES, (size,), generator=generator)
        if in_runs:
            labels = labels * 0 + number // 4 % CLASSES
        noise = torch.rand(size, *SHAPE, generator=generator, dtype=torch.float64)
        found.append((0.6 * patterns[labels] + 0.4 * noise) * (1 - 0.5 * number / count))
    if broken:
        found[1][4, 0, 0, 0] = torch.nan
        found[2][:7] = torch.inf  # all that the first of two or three ranks has
        found[4][:] = torch.nan
    return found


@dataclass(frozen=True)
class Case:
    """One stream: a network, what `adapt` is told, and the batches."""

    network: str = "batch"
    options: dict[str, Any] = field(default_factory=dict)
    count: int = SHORT
    in_runs: bool = False
    broken: bool = False

    def adapter(self, group: Any) -> Adapter:
        options = {"trained_with": "poly:epsilon=2", "learning_rate": 0.02, **self.options}
        if options.get("method") == "eata":
            options["source_images"] = torch.cat(batches(3))
        return fenchel.adapt(network(self.network), group=group, **options)

    def images(self) -> list[Tensor]:
        return batches(self.count, in_runs=self.in_runs, broken=self.broken)


MEMO = {"method": "memo", "input_range": (0.0, 1.0), "views": 2}
COTTA = {"method": "cotta", "input_range": (0.0, 1.0), "views": 2}
HARM = {"method": "entropy", "protect": "auto"}
ETA = {"method": "eta", "margin": 0.9, "similarity": 0.99}

CASES = {
    f"{method}, {kind} norm": Case(kind, options, LONG)
    for method, options in {
        "conjugate": {"method": "conjugate"},
        "memo": MEMO,
        "eta": ETA,
        "protected": {},
    }.items()
    for kind in ("batch", "layer")
}
"""What must hold."""

FURTHER = {
    "adam, two steps, before": Case(
        options={"method": "entropy", "optimizer": "adam", "steps": 2, "predict": "before"}
    ),
    "hard, every second batch": Case(
        options={"method": "hard", "threshold": 0.6, "update_every": 2}
    ),
    "a running mix": Case(options={"method": "conjugate", "statistics": 0.2}),
    "a mix with the source": Case(options={"method": "conjugate", "statistics": "mix:0.3"}),
    "corrected per sample": Case(options={"method": "conjugate", "statistics": "note"}),
    "layers without statistics": Case(
        "no statistics", {"method": "conjugate", "statistics": "source"}
    ),
    "all parameters, one batch at a time": Case(
        options={"method": "soft", "parameters": "all", "episodic": True}
    ),
    "conjugate, two rows per image": Case("in halves", {"method": "conjugate"}),
    "protected, two rows per image": Case("in halves"),
    "protected, few parameters": Case(options={"parameters": "last:1"}),
    "protected, labels in runs": Case(in_runs=True, count=20),
    "protected, broken images": Case(broken=True),
    "conjugate, broken images": Case(options={"method": "conjugate"}, broken=True),
    "harm": Case("layer", {**HARM, "learning_rate": 0.03}, count=20),
    "harm in one step": Case("layer", {**HARM, "learning_rate": 5.0}, count=20),
    "bn": Case(options={"method": "bn"}),
    "bn-alpha": Case(options={"method": "bn-alpha"}),
    "deyo": Case(options={"method": "deyo", "margin": 1.0, "drop": -1.0, "patches": 3}),
    "roid": Case(options={"method": "roid", "input_range": (0.0, 1.0)}),
    "cotta": Case(options={**COTTA, "confidence": 1.0}),
    "cotta, sure": Case("layer", {**COTTA, "confidence": 0.0}),
    "rotta": Case(options={"method": "rotta", "input_range": (0.0, 1.0), "bank": 8}),
    "sar": Case(options={"method": "sar", "margin": 0.95}),
    "eata": Case(options={**ETA, "method": "eata"}),
    "rdumb": Case(options={**ETA, "method": "rdumb", "every": 3}),
    "lame": Case(options={"method": "lame"}),
    "t3a": Case(options={"method": "t3a"}),
}


def names_of(size: int) -> list[str]:
    """The cases that so many ranks run: two run them all."""
    return [
        name
        for name, case in (CASES | FURTHER).items()
        if size == 2 or name in CASES or case.broken or case.in_runs
    ]


def run(case: Case, group: Group | None) -> tuple[Adapter, list[Tensor]]:
    """The adapter after all batches, and the logits of every whole batch."""
    adapter = case.adapter(None if group is None else group.processes)
    outputs = []
    for images in case.images():
        mine = images if group is None else images[group.rows(len(images))]
        logits = adapter(mine)
        assert len(logits) == len(mine)
        outputs.append(logits if group is None else group.whole(logits))
    return adapter, outputs


def compared(case: Case, group: Group) -> dict[str, Any]:
    """What a group made of a stream beside what one process makes of it."""
    adapter, outputs = run(case, group)
    saved = adapter.state_dict()
    bits = zlib.crc32(b"".join(tensor.numpy().tobytes() for tensor in saved.values()))
    found: dict[str, Any] = {"same_bits": len({bits for (bits,) in group.numbers(bits)}) == 1}
    if group.rank:
        return found
    alone, expected = run(case, None)
    theirs = alone.state_dict()
    source = network(case.network).state_dict()
    return found | {
        "parameters": _apart(saved, theirs, "parameters."),
        "everything": _apart(saved, theirs),
        "logits": max(map(_distance, outputs, expected)),
        "classes": all(
            torch.equal(ours.argmax(-1), whole.argmax(-1))
            for ours, whole in zip(outputs, expected, strict=True)
        ),
        "health": _counts(adapter),
        "expected_health": _counts(alone),
        "moved": max(
            (
                _distance(value, source[name.removeprefix("parameters.")])
                for name, value in saved.items()
                if name.startswith("parameters.")
            ),
            default=0.0,
        ),
    }


def _apart(one: dict[str, Tensor], other: dict[str, Tensor], prefix: str = "") -> float:
    assert one.keys() == other.keys()
    names = [name for name in one if name.startswith(prefix)]
    return max((_distance(one[name].double(), other[name].double()) for name in names), default=0.0)


def _distance(one: Tensor, other: Tensor) -> float:
    """The largest difference; what is not a number on both sides is the same."""
    same = (one == other) | (one.isnan() & other.isnan())
    return float(torch.where(same, 0.0, (one - other).abs()).max())


def _counts(adapter: Adapter) -> dict[str, Any]:
    told = asdict(adapter.health())
    del told["signals"]
    return told


def in_other_modes(group: Group) -> float:
    """How far the predictions of all modes are from those of one process, from a state that it saved."""
    case = Case()
    alone, shared = case.adapter(None), case.adapter(group.processes)
    first, second, third, *_ = case.images()
    alone(first)
    shared.load_state_dict(alone.state_dict())
    apart = []
    for images in (second, third[:1], third[:0]):
        mine = images[group.rows(len(images))]
        for predict in (
            lambda adapter, x: adapter.source_prediction(x),
            lambda adapter, x: adapter.unmoved_prediction(x),
            lambda adapter, x: (adapter.freeze(), adapter(x))[1],
            lambda adapter, x: (adapter.disable(), adapter(x))[1],
            lambda adapter, x: (adapter.resume(), adapter(x))[1],
        ):
            found = group.whole(predict(shared, mine))
            if len(images):  # which the network refuses, and a group does not
                apart.append(_distance(found, predict(alone, images)))
            assert len(found) == len(images)
    return max(apart)


class Own(fenchel.Method):
    """A method that says nothing of whole batches."""


def refusals(group: Group) -> dict[str, str]:
    """What is refused, on every rank alike."""
    said = {}
    adapted = Case(options={"method": "conjugate"}).adapter(group.processes)
    attempts: dict[str, Callable[[], Any]] = {
        "method": lambda: Case(options={"method": Own()}).adapter(group.processes),
        "compile": lambda: Case(options={"method": "conjugate", "compile": True}).adapter(
            group.processes
        ),
        "streams": lambda: fenchel.Streams(adapted),
        "shapes": lambda: adapted(torch.rand(4, 3, 6 + group.rank, 6, dtype=torch.float64)),
        "one value": lambda: fenchel.adapt(
            nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)),
            trained_with="cross-entropy",
            method="bn",
            group=group.processes,
        )(torch.rand(int(group.rank == 0), 3)),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            said[name] = "nothing was refused"
        except ValueError as error:
            said[name] = str(error)
    return said


def lost(group: Group) -> str:
    """What is said when a rank has ended in the middle of a stream, and that the state is as it was."""
    adapted = Case(options={"method": "conjugate"}).adapter(group.processes)
    first, second, *_ = batches(SHORT)
    adapted(first[group.rows(len(first))])
    before = adapted.state
    if group.rank == group.size - 1:
        os._exit(0)
    try:
        adapted(second[group.rows(len(second))])
    except ConnectionError as error:
        assert adapted.state is before
        return str(error)
    return "nothing was noticed"


def adapt_as(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = f"file://{(folder / 'store').absolute()}"
    dist.init_process_group("gloo", store, timedelta(minutes=5), world_size=size, rank=rank)
    group = Group.of(dist.group.WORLD)
    assert group is not None
    found: dict[str, Any] = {}
    for name in names_of(size):
        found[name] = compared((CASES | FURTHER)[name], group)
    found["other modes"] = in_other_modes(group)
    found["refusals"] = refusals(group)
    found["lost"] = lost(group)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    os._exit(0)  # a group that has lost a member cannot be ended in order


def main(size: int, folder: Path) -> int:
    """Whether a rank failed."""
    context = get_context("fork" if hasattr(os, "fork") else "spawn")
    ranks = [context.Process(target=adapt_as, args=(rank, size, folder)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return int(any(rank.exitcode for rank in ranks))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
