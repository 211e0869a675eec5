"""Which parts of a preset can be run here: checkpoints and data that are present, and how to get the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fenchel.bench.plan import Plan, make_plan
from fenchel.bench.sources import ShiftSource, shift_sources
from fenchel.bench.sweep import DataChoice, Sweep
from fenchel.data import DATASETS
from fenchel.models import Metadata, read_metadata
from fenchel.models.places import address, resolve
from fenchel.names import parse_spec
from fenchel.paper.preset import Line, Preset, Scale, SourceModel

EMPTY = Plan((), ())


@dataclass(frozen=True)
class Missing:
    """Something that lines of a preset need and that is not here."""

    what: str
    how: str


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint on disk and its metadata."""

    path: Path
    metadata: Metadata

    def tuned(self, kind: str) -> Path | None:
        """The file of settings tuned for it, beside it: `NAME.tuned.json`; None if there is none."""
        file = self.path.with_suffix(f".{kind}.json")
        return file if file.is_file() else None


@dataclass(frozen=True)
class LinePlan:
    """What is run for a line: nothing where the model or all of the data are missing."""

    line: Line
    scale: Scale
    plan: Plan
    checkpoint: FoundCheckpoint | None
    shifts: int
    shifts_wanted: int
    missing: tuple[Missing, ...]


@dataclass(frozen=True)
class PresetPlan:
    """What is run for a preset at a scale."""

    preset: Preset
    scale: str
    lines: tuple[LinePlan, ...]

    @property
    def plan(self) -> Plan:
        """All lines together, each cell once."""
        jobs = {job.cell.key: job for line in self.lines for job in line.plan.jobs}
        requests = dict.fromkeys(name for line in self.lines for name in line.plan.requests)
        return Plan(tuple(jobs.values()), tuple(requests))

    @property
    def missing(self) -> dict[Missing, tuple[str, ...]]:
        """What is not here, with the lines that need it."""
        found: dict[Missing, list[str]] = {}
        for line in self.lines:
            for item in line.missing:
                found.setdefault(item, []).append(line.line.title)
        return {item: tuple(titles) for item, titles in found.items()}

    def missing_lines(self) -> list[str]:
        """What is not here, for which lines, and how to get it, as text."""
        told = []
        for item, lines in self.missing.items():
            told += [f"missing: {item.what}, for {'; '.join(lines)}", f"    get it: {item.how}"]
        return told

    def facts(self) -> dict[str, Any]:
        """What is run and what is not here, as plain values."""
        checkpoints = (line.checkpoint for line in self.lines if line.checkpoint)
        return {
            "preset": self.preset.name,
            "about": self.preset.about,
            "scale": self.scale,
            "cells": len(self.plan.jobs),
            "sources": list(dict.fromkeys(str(checkpoint.path) for checkpoint in checkpoints)),
            "missing": [
                {"what": item.what, "how": item.how, "lines": list(lines)}
                for item, lines in self.missing.items()
            ],
        }


def find_checkpoints(places: Iterable[str | Path]) -> tuple[FoundCheckpoint, ...]:
    """Every checkpoint at the given files and below the given folders, place by place, by path."""
    found: dict[Path, FoundCheckpoint] = {}
    for place in map(resolve, places):
        if not place.is_dir():
            found[place] = FoundCheckpoint(place, read_metadata(place))
            continue
        for file in sorted(place.rglob("*.safetensors")):
            try:
                metadata = read_metadata(file)
            except (ValueError, OSError):
                continue  # the state of a training run, or weights of another program
            if not metadata.code:  # else it cannot be opened without a file of the user's
                found[file] = FoundCheckpoint(file, metadata)
    return tuple(found.values())


def plan_preset(
    preset: Preset, scale: str, checkpoints: Sequence[FoundCheckpoint], *, device: str = "cpu"
) -> PresetPlan:
    """The runs of a preset for which model and data are here.

    >>> from fenchel.paper import PRESETS
    >>> len(plan_preset(PRESETS["table-ce-digits"], "smoke", ()).plan.jobs)
    0
    """
    can_open = cache(
        can_open_shift
    )  # lines share data, and listing ImageNet-C's files takes a while
    lines = tuple(
        _plan_line(
            line,
            preset.scale(line, scale),
            checkpoints,
            can_open,
            device,
            preset.figure == "learned",
        )
        for line in preset.lines
    )
    return PresetPlan(preset, scale, lines)


def _plan_line(
    line: Line,
    scale: Scale,
    checkpoints: Sequence[FoundCheckpoint],
    can_open: Callable[[ShiftSource], bool],
    device: str,
    learned: bool,
) -> LinePlan:
    """`learned`: no sweep, but the validation corruptions are needed besides the test ones."""
    checkpoint = _choose(line.source, checkpoints)
    missing = [] if checkpoint else [missing_checkpoint(line.source, scale)]
    if checkpoint and scale.retuned and (tuned := checkpoint.tuned(line.tuning)):
        metadata = checkpoint.metadata
        line = line.with_settings_of(tuned, metadata.architecture, metadata.loss)
    wanted = _shifts(line.data, "all" if learned else line.corruptions, line.severities)
    part, chosen = line.parts.get(scale.name), wanted
    if part is not None:
        chosen = _shifts(line.data, part.corruptions, part.severities)
    present = [source for source in chosen if can_open(source)]
    if len(present) < len(chosen):
        missing.append(missing_data(line.data, len(chosen) - len(present), len(chosen)))
    plan, joined = EMPTY, line.stream.joins_shifts
    if joined and len(present) < len(wanted):
        present = []  # a stream is whole or it is another one
    if checkpoint and present and not learned:
        limit = line.stream.limit(scale.limit)
        sweep = Sweep(
            data=[_joined(line, limit)] if joined else _choices(line.data, present, limit),
            checkpoints=[address(checkpoint.path)],
            methods=line.choices,
            seeds=scale.seeds,
            stream=line.stream.choice(scale.batch_size),
        )
        plan = make_plan(sweep, device=device)
    counts = (len(present), len(wanted)) if not joined else (min(1, len(present)), 1)
    return LinePlan(line, scale, plan, checkpoint, *counts, tuple(missing))


def _shifts(
    data: str, corruptions: str | Sequence[str] | None, severities: Sequence[int]
) -> tuple[ShiftSource, ...]:
    return shift_sources(DataChoice(name=data, corruptions=corruptions, severities=severities))


def _joined(line: Line, limit: int | None) -> DataChoice:
    """All shifts of a line, for one stream."""
    return DataChoice(
        name=line.data, corruptions=line.corruptions, severities=line.severities, limit=limit
    )


def _choose(source: SourceModel, checkpoints: Sequence[FoundCheckpoint]) -> FoundCheckpoint | None:
    """The matching checkpoint whose architecture is closest to the paper's; the first that was found."""
    order = {name: place for place, name in enumerate(source.architectures)}
    matching = [
        found
        for found in checkpoints
        if source.matches(found.metadata.data, found.metadata.loss, found.metadata.architecture)
    ]
    return min(
        matching,
        key=lambda found: order.get(found.metadata.architecture, len(order)),
        default=None,
    )


def can_open_shift(source: ShiftSource) -> bool:
    """Whether the files of a shift are here."""
    try:
        source.open()
    except OSError:
        return False
    return True


def _choices(data: str, present: Sequence[ShiftSource], limit: int | None) -> list[DataChoice]:
    """The present shifts as a sweep takes them: the corruptions of each severity."""
    if present[0].corruption is None:
        return [DataChoice(name=data, limit=limit)]
    by_severity: dict[int, list[str]] = {}
    for source in present:
        by_severity.setdefault(source.severity or 0, []).append(source.corruption or "")
    return [
        DataChoice(name=data, corruptions=corruptions, severities=(severity,), limit=limit)
        for severity, corruptions in by_severity.items()
    ]


def missing_checkpoint(source: SourceModel, scale: Scale) -> Missing:
    """A network that is not here, and how to train one."""
    what = f"a checkpoint trained on {parse_spec(source.data)[0]} with {source.loss}"
    if source.pretrained:
        what = f"the published network {source.pretrained}"
    return Missing(what, source.command(scale.name))


def missing_data(data: str, absent: int, wanted: int) -> Missing:
    """Shifts that are not here, and how to get them."""
    name = parse_spec(data)[0]
    entry = DATASETS[name]
    ways = [f"fenchel data fetch {name}"] if entry.recipe else []
    ways += [entry.by_hand] if entry.by_hand else []
    part = "" if absent == wanted else f" ({absent} of {wanted} shifts)"
    return Missing(f"the data set {name}{part}", "; ".join(ways))
