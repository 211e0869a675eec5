"""Settings of a stream: in which order its shifts come, and where the adapter is reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

SETTINGS: Mapping[str, str] = {
    "reset": "one shift after the other, the adapter reset before each (the paper's)",
    "continual": "one shift after the other, never reset",
    "gradual": "each corruption rises from the lowest severity to the highest and falls again",
    "mixed": "samples of all shifts shuffled together",
    "recurring": "one shift after the other, the whole round several times, never reset",
    "bursts": "continual, interrupted by images that show nothing, which are not scored",
    "clean-then-shift-then-clean": "the clean data, then the shifts, then the clean data again, never reset",
}
BURSTS, ROUND_TRIP = "bursts", "clean-then-shift-then-clean"


@dataclass(frozen=True)
class Segment:
    """Shifts that are presented together: one, or all of them in the mixed setting."""

    members: tuple[int, ...]  # positions in stream.shifts
    reset: bool


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def severity(self) -> int | None: ...


def segments_of(setting: str, shifts: Sequence[_Named], rounds: int) -> tuple[Segment, ...]:
    """What is presented one after the other."""
    positions = list(range(len(shifts)))
    if setting == "mixed":
        return (Segment(tuple(positions), reset=True),)
    if setting == "gradual":
        positions = _ramp(shifts)
    elif setting == "recurring":
        positions = positions * rounds
    elif setting == ROUND_TRIP:
        positions = _there_and_back(positions)
    every = setting == "reset"
    return tuple(Segment((k,), reset=every or n == 0) for n, k in enumerate(positions))


def _there_and_back(positions: list[int]) -> list[int]:
    """The first shift, which is the clean data, then the others, then the first again."""
    if len(positions) < 2:
        raise ValueError(
            f"the setting {ROUND_TRIP} needs the clean data and at least one shift; got "
            f"{len(positions)} of them. Pass the clean data first, then the shifts."
        )
    return [*positions, positions[0]]


def _ramp(shifts: Sequence[_Named]) -> list[int]:
    """Each corruption's shifts from weak to strong and back: 1 2 3 4 5 4 3 2 1."""
    groups: dict[str, list[int]] = {}
    for position, shift in enumerate(shifts):
        groups.setdefault(shift.name, []).append(position)
    ramp: list[int] = []
    for name, positions in groups.items():
        severities = [shifts[k].severity for k in positions]
        if None in severities or len(set(severities)) < 2:
            raise ValueError(
                f"the gradual setting needs several severities of each corruption; {name} has "
                f"{severities}. Pass severities=(1, 2, 3, 4, 5)."
            )
        rising = sorted(positions, key=lambda k: shifts[k].severity or 0)
        ramp += [*rising, *rising[-2::-1]]
    return ramp
