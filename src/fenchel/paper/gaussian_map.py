"""The appendix experiment over its open choices: who improves, who falls, where the paper's panels hold.

The paper leaves open from which range the entries of the covariances are drawn, and the learning rate.
Both decide how hard a shift is. The map runs the experiment of `gaussian_experiment` for every range,
rate and shift, and asks of every draw whether it shows what the paper's three panels show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fenchel.names import unknown
from fenchel.paper.gaussian_experiment import GaussianOutcome, GaussianSettings, run_gaussians

FASTEST_AT = (0.6, 0.65)
"""Shifts at which the paper's conjugate rises fastest."""
ALONE_AT = 0.7
"""The shift at which it alone improves, and the entropy falls."""
MARGIN = 1.0
"""Points of accuracy by which a method has to end above its source to improve, or below it to fall."""

Range = tuple[float, float]
"""The lowest and the highest variance along an axis of a cluster."""


@dataclass(frozen=True)
class MapSettings:
    """Ranges of variances, rates and shifts; everything else is as in `each`.

    Draw k has the same means and axes at every range: only the variances along the axes differ.
    """

    ranges: tuple[Range, ...] = ((0.05, 0.1), (0.5, 1), (1, 2), (1, 5), (2, 10), (5, 20))
    rates: tuple[float, ...] = (0.001, 0.005, 0.02, 0.1)
    each: GaussianSettings = field(
        default_factory=lambda: GaussianSettings(shifts=(0.6, 0.65, 0.7, 0.75, 0.8), samples=2000)
    )

    @property
    def adaptations(self) -> int:
        """How many there are in all."""
        each = self.each
        experiments = len(self.ranges) * len(self.rates)
        return experiments * each.draws * len(each.shifts) * len(each.methods)


@dataclass(frozen=True)
class Point:
    """One adaptation: accuracies in percent, before, at the end, and on average over the iterations."""

    variances: Range
    rate: float
    shift: float
    draw: int
    method: str
    source: float
    final: float
    mean: float

    @property
    def gain(self) -> float:
        """The points by which it ends above its source."""
        return self.final - self.source

    @property
    def improves(self) -> bool:
        """Whether it ends well above its source."""
        return self.gain >= MARGIN

    @property
    def falls(self) -> bool:
        """Whether it ends well below its source."""
        return self.gain <= -MARGIN


Map = Mapping[tuple[Range, float, float, int], Mapping[str, Point]]
"""The methods' points by range, rate, shift and draw."""


def run_map(settings: MapSettings, advance: Callable[[], None] = lambda: None) -> tuple[Point, ...]:
    """The experiment at every range and rate; `advance` is called after each adaptation.

    >>> tiny = GaussianSettings(draws=1, samples=200, dimension=5, iterations=3)
    >>> len(run_map(MapSettings(ranges=((1, 5),), rates=(0.01, 0.1), each=tiny)))
    18
    """
    found: list[Point] = []
    for low, high in settings.ranges:
        for rate in settings.rates:
            choices = replace(
                settings.each, low_variance=low, high_variance=high, learning_rate=rate
            )
            found += _points(run_gaussians(choices, advance))
    return tuple(found)


def _points(outcome: GaussianOutcome) -> Iterator[Point]:
    settings = outcome.settings
    variances = (settings.low_variance, settings.high_variance)
    for (shift, method), curves in outcome.accuracies.items():
        for draw, curve in enumerate(curves):
            ends = (round(float(value), 4) for value in (curve[0], curve[-1], curve[1:].mean()))
            yield Point(variances, settings.learning_rate, shift, draw, method, *ends)


def as_map(points: Sequence[Point]) -> Map:
    """The points of all methods under the same conditions, together."""
    found: dict[tuple[Range, float, float, int], dict[str, Point]] = {}
    for point in points:
        place = (point.variances, point.rate, point.shift, point.draw)
        found.setdefault(place, {})[point.method] = point
    return found


def rises_fastest(methods: Mapping[str, Point], who: str = "conjugate") -> bool:
    """Whether a method improves, and has the highest accuracy over the iterations of all."""
    others = [point.mean for name, point in methods.items() if name != who]
    return methods[who].improves and methods[who].mean > max(others)


def improves_alone(methods: Mapping[str, Point]) -> bool:
    """Whether the conjugate improves, nothing else does, and the entropy falls."""
    others = [point for name, point in methods.items() if name != "conjugate"]
    alone = methods["conjugate"].improves and not any(point.improves for point in others)
    return alone and methods["entropy"].falls


def panels_hold(found: Map, variances: Range, rate: float, draw: int) -> bool:
    """Whether one draw shows the paper's three panels together."""
    at = {shift: found[variances, rate, shift, draw] for shift in (*FASTEST_AT, ALONE_AT)}
    return all(rises_fastest(at[shift]) for shift in FASTEST_AT) and improves_alone(at[ALONE_AT])


def draws_that_hold(points: Sequence[Point]) -> dict[tuple[Range, float], int]:
    """In how many draws the paper's panels hold together, by range and rate."""
    found = as_map(points)
    counts: dict[tuple[Range, float], int] = {}
    for variances, rate, draw in dict.fromkeys((p.variances, p.rate, p.draw) for p in points):
        held = panels_hold(found, variances, rate, draw)
        counts[variances, rate] = counts.get((variances, rate), 0) + held
    return counts


_SAMPLES = {"full": 10_000, "cpu": 2000, "smoke": 100}


def map_settings(scale: str) -> MapSettings:
    """Ten draws at every scale; `full` draws more points, `smoke` fewer, at one range and one rate."""
    if scale not in _SAMPLES:
        raise unknown("scale", scale, _SAMPLES)
    usual, single = MapSettings(), GaussianSettings()
    settings = replace(usual, each=replace(usual.each, samples=_SAMPLES[scale]))
    if scale != "smoke":
        return settings
    return MapSettings(
        ranges=((single.low_variance, single.high_variance),),
        rates=(single.learning_rate,),
        each=replace(settings.each, shifts=single.shifts),
    )
