"""Tables and figures of the paper: lines of runs with published settings and errors, read from data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from fenchel.bench.sweep import MethodChoice
from fenchel.bench.tuned import read_tuned
from fenchel.losses import parse
from fenchel.names import Registry, parse_spec, unknown
from fenchel.paper.streaming import ONE_BY_ONE, LineStream

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One number of the paper: how it was run, and its error in percent (None: not published)."""

    optimizer: str | None = None
    learning_rate: float | None = None
    temperature: float | None = None
    error: float | None = None
    spread: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `fenchel.adapt`; none where nothing adapts."""
        values = {
            "optimizer": self.optimizer,
            "learning_rate": self.learning_rate,
            "temperature": self.temperature,
        }
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        if self.optimizer is None:
            return "-"
        return f"{self.optimizer} {self.learning_rate:g}, T {self.temperature:g}"


@dataclass(frozen=True, kw_only=True)
class SourceModel:
    """What the paper adapts: a network trained on `data` with `loss`.

    Attributes:
        data: the data set it was trained on.
        loss: its spec; an argument that is left out may have any value.
        architectures: the paper's first, then lighter ones; any other is taken if there is none.
        recipe: further arguments of `fenchel train` for a source like the paper's.
        pretrained: the published network to fetch; no other architecture than those named will do then.
        unstated: argument values to train with where the paper is silent.
    """

    data: str
    loss: str
    architectures: tuple[str, ...]
    recipe: str = ""
    pretrained: str = ""
    unstated: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, data: str | None, loss: str, architecture: str = "") -> bool:
        """Whether a checkpoint of a model trained on `data` with `loss` will do."""
        wanted = parse_spec(self.loss)[1]
        if data is None or parse_spec(data)[0] != parse_spec(self.data)[0]:
            return False
        if self.pretrained and architecture not in self.architectures:
            return False
        given = parse(loss)
        return type(given) is type(parse(self.loss)) and all(
            getattr(given, argument) == value for argument, value in wanted.items()
        )

    def command(self, scale: str) -> str:
        """How to get one: fetched, or trained like the paper's at full scale, else as a CPU can train it."""
        if self.pretrained:
            return f"fenchel models fetch {self.pretrained}"
        name, arguments = parse_spec(self.loss)
        tail = ",".join(f"{key}={value}" for key, value in {**self.unstated, **arguments}.items())
        loss = f"{name}:{tail}" if tail else name
        model, recipe = self.architectures[-1], ""
        if scale == "full":
            model, recipe = self.architectures[0], self.recipe
        return f"fenchel train --data {self.data} --model {model} --loss {loss} {recipe}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some of the shifts of a line: all that is run of it at a scale."""

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a table: one source on one target, with the paper's run for every method.

    Attributes:
        title: `CIFAR-10-C, T = 1`.
        data: the target, a data set or its spec; with corruptions, the fifteen test ones.
        corruptions: fewer of them, where the line is over some only.
        severities: those of the corruptions; the error is the mean over corruptions and severities.
        parts: by scale, the shifts that are run where all of them would take days.
        source: the model.
        runs: by method, in the order of the paper's columns.
        tuning: which temperatures a tuning for this line may choose from: 1, 2, or any; "none" where
            settings are fixed because there is nothing to tune on.
        tuned: the file of `fenchel tune` that the settings of `runs` come from, if they are not published.
        stream: in which kind of stream the shifts come.
    """

    title: str
    data: str
    corruptions: tuple[str, ...] | None = None
    severities: tuple[int, ...] = (5,)
    parts: Mapping[str, Part] = field(default_factory=dict)
    source: SourceModel
    runs: Mapping[str, PublishedRun]
    tuning: Literal["none", "t1", "t2", "tuned", "streams"] = "none"
    tuned: Path | None = None
    stream: LineStream = ONE_BY_ONE

    @property
    def choices(self) -> tuple[MethodChoice, ...]:
        """The methods as a sweep takes them."""
        if self.tuned is not None:
            return tuple(MethodChoice(name=method, tuned=str(self.tuned)) for method in self.runs)
        return tuple(
            MethodChoice(name=method, grid={name: [value] for name, value in run.settings.items()})
            for method, run in self.runs.items()
        )

    def with_settings_of(self, tuned: Path, architecture: str, loss: str) -> Line:
        """The line with every method at the settings that a tuning chose for this kind of source."""
        choices = read_tuned(tuned)
        runs = {
            method: replace(run, **choices.settings_for(architecture, loss, method))
            for method, run in self.runs.items()
        }
        return replace(self, runs=runs, tuned=tuned)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of the experiment is run: images per shift (None: all), batch size, seeds.

    retuned: whether settings tuned for the given source replace the published ones, which belong to
        batches of 200 and the paper's networks.
    """

    name: str
    limit: int | None
    batch_size: int
    seeds: tuple[int, ...]
    retuned: bool = False

    def __str__(self) -> str:
        images = "all images" if self.limit is None else f"{self.limit} images per shift"
        seeds = "one seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return f"{images}, batches of {self.batch_size}, {seeds}"


SMALL_IMAGES: Mapping[str, Scale] = {
    "full": Scale(name="full", limit=None, batch_size=200, seeds=(0, 1, 2)),
    "cpu": Scale(name="cpu", limit=5000, batch_size=100, seeds=(0,), retuned=True),
    "smoke": Scale(name="smoke", limit=100, batch_size=50, seeds=(0,)),
}
THREE_SEEDS: Mapping[str, Scale] = {
    **SMALL_IMAGES,
    "cpu": replace(SMALL_IMAGES["cpu"], seeds=(0, 1, 2)),
}
DIGITS: Mapping[str, Scale] = {
    **SMALL_IMAGES,
    "cpu": replace(THREE_SEEDS["cpu"], limit=None),
}
LEARNED: Mapping[str, Scale] = {
    **SMALL_IMAGES,
    "cpu": Scale(name="cpu", limit=1000, batch_size=100, seeds=(0, 1, 2)),
    "smoke": Scale(name="smoke", limit=50, batch_size=25, seeds=(0,)),
}
"""Scales of learned objectives. The limit holds for each part: images to learn on, images to score on."""
STREAMS: Mapping[str, Scale] = {
    **SMALL_IMAGES,
    "cpu": Scale(name="cpu", limit=250, batch_size=50, seeds=(0,), retuned=True),
    "smoke": Scale(name="smoke", limit=20, batch_size=20, seeds=(0,)),
}
"""Scales of methods by streams, of which there are many."""
HOSTILE: Mapping[str, Scale] = {
    "full": Scale(name="full", limit=None, batch_size=100, seeds=(0, 1, 2)),
    "cpu": Scale(name="cpu", limit=1000, batch_size=100, seeds=(0, 1, 2)),
    "smoke": Scale(name="smoke", limit=20, batch_size=5, seeds=(0,)),
}
"""Scales of hostile streams. Some take a multiple of these images, and some have batches of their own."""
LARGE_IMAGES: Mapping[str, Scale] = {
    "full": Scale(name="full", limit=None, batch_size=200, seeds=(0, 1, 2)),
    "cpu": Scale(name="cpu", limit=1000, batch_size=64, seeds=(0,)),
    "smoke": Scale(name="smoke", limit=32, batch_size=16, seeds=(0,)),
}
"""Scales for images of 224 pixels, on which a step costs fifty times as much."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A table or figure of the paper.

    Attributes:
        name: `table-ce`, ...
        about: what it shows, in one line.
        lines: empty for an experiment that is not a sweep over data sets.
        notes: where the paper is silent or contradicts itself.
        figure: the quantity that is drawn besides the table, if any.
        scales: for its lines with small images; images of 224 pixels have their own.
    """

    name: str
    about: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    figure: str | None = None
    scales: Mapping[str, Scale] = field(default_factory=lambda: SMALL_IMAGES)

    def scale(self, line: Line, name: str) -> Scale:
        """How much of `line` is run at the scale called `name`."""
        scales = LARGE_IMAGES if line.source.data in ("imagenet", "visda-c") else self.scales
        if name not in scales:
            raise unknown("scale", name, scales)
        return scales[name]


SCALES = tuple(SMALL_IMAGES)
_SCALES_BY_NAME: Mapping[str, Mapping[str, Scale]] = {
    "small": SMALL_IMAGES,
    "three-seeds": THREE_SEEDS,
    "digits": DIGITS,
    "learned": LEARNED,
    "streams": STREAMS,
    "hostile": HOSTILE,
}


def read_preset(name: str, text: str) -> Preset:
    """The preset that a TOML file describes."""
    values = tomllib.loads(text)
    sources = {
        key: SourceModel(**{**facts, "architectures": tuple(facts["architectures"])})
        for key, facts in values.get("sources", {}).items()
    }
    streams = [LineStream.of(facts) for facts in values.get("streams", ())]
    lines = [_line(facts, sources) for facts in values.get("lines", ())]
    return Preset(
        name=name,
        about=values["about"],
        lines=tuple(lines if not streams else _on_streams(lines, streams)),
        notes=tuple(values.get("notes", ())),
        figure=values.get("figure"),
        scales=_SCALES_BY_NAME[values["scales"]],
    )


def _line(facts: dict[str, Any], sources: Mapping[str, SourceModel]) -> Line:
    runs = {method: PublishedRun(**run) for method, run in facts.pop("runs").items()}
    for name in ("corruptions", "severities"):
        if name in facts:
            facts[name] = tuple(facts[name])
    facts["parts"] = {
        scale: Part(**{name: tuple(values) for name, values in part.items()})
        for scale, part in facts.get("parts", {}).items()
    }
    return Line(**{**facts, "source": sources[facts["source"]]}, runs=runs)


def _on_streams(lines: Sequence[Line], streams: Sequence[LineStream]) -> Iterator[Line]:
    """Every line on every stream."""
    for line in lines:
        for stream in streams:
            yield replace(
                line,
                title=f"{line.title}, {stream.title}",
                stream=stream,
                data=stream.data or line.data,
                corruptions=stream.corruptions or line.corruptions,
                severities=stream.severities or line.severities,
            )


ORDER = (
    "table-ce",
    "table-poly",
    "table-severity",
    "table-squared",
    "fig-task-loss",
    "table-bce",
    "table-domain",
    "table-ce-digits",
    "fig-gaussian",
    "fig-gaussian-map",
    "fig-meta",
    "streams",
    "hostile",
)
"""The order in which `fenchel reproduce list` shows the presets."""

PRESETS: Registry[Preset] = Registry("preset")
for _name in ORDER:
    _file = files("fenchel.paper") / "tables" / f"{_name}.toml"
    PRESETS.add(_name, read_preset(_name, _file.read_text(encoding="utf-8")))
