"""What a sweep consists of: data x models x methods x grids x seeds, under one protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from fenchel.adapters import METHODS, Scores
from fenchel.adapters.normalization import Statistics, check_statistics
from fenchel.data import DATASETS
from fenchel.data.bursts import DEFAULT_BURSTS, parse_bursts
from fenchel.data.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    TEST_CORRUPTIONS,
    VALIDATION_CORRUPTIONS,
)
from fenchel.data.orders import ORDERS
from fenchel.data.settings import SETTINGS
from fenchel.data.stream import DEFAULT_BATCH_SIZE, DEFAULT_ROUNDS
from fenchel.names import parse_spec, unknown
from fenchel.options import key_or_index
from fenchel.plugins import load_plugins

CORRUPTION_GROUPS: Mapping[str, tuple[str, ...]] = {
    "test": TEST_CORRUPTIONS,
    "validation": VALIDATION_CORRUPTIONS,
    "all": (*TEST_CORRUPTIONS, *VALIDATION_CORRUPTIONS),
    "none": (),
}


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """A data set and how it is shifted.

    Attributes:
        name: a data set, or `name:option=value`.
        root: the folder that holds it; None for the cache.
        corruptions: names, or a key of `CORRUPTION_GROUPS`. None means the test corruptions for a data
            set that exists corrupted alone (`cifar10-c`); any other is then a shift of its own.
        severities: 1 to 5.
        constants: the strengths of corruptions applied on the fly; None chooses by the image size.
        noise_seed: the seed of corruptions applied on the fly.
        textures: the folder of frost textures for them.
        limit: the size of a random subset of the images of each shift; None for all.
    """

    name: str
    root: str | None = None
    corruptions: str | Sequence[str] | None = None
    severities: Sequence[int] = (5,)
    constants: str | None = None
    noise_seed: int = 0
    textures: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        DATASETS[parse_spec(self.name)[0]]
        if not isinstance(self.corruptions, (str, list, tuple, type(None))):
            raise TypeError(
                f"corruptions is a name or a list of names; got {self.corruptions!r}. Groups are "
                f"{', '.join(CORRUPTION_GROUPS)}."
            )
        if self.constants is not None and self.exists_corrupted:
            raise ValueError(
                f"constants choose how images are corrupted on the fly; {self.name} has its own, got "
                f"{self.constants!r}. Leave constants out."
            )
        for corruption in self.corruption_names:
            if corruption not in CORRUPTIONS:
                raise unknown("corruption", corruption, [*CORRUPTIONS, *CORRUPTION_GROUPS])
        for severity in self.severities:
            if isinstance(severity, bool) or severity not in SEVERITIES:
                raise ValueError(f"severities are whole numbers from 1 to 5; got {severity!r}.")
            if self.constants is not None:
                for corruption in self.corruption_names:
                    CORRUPTIONS[corruption].strength(self.constants, severity)
        if not self.severities:
            raise ValueError("severities must name at least one; got none. Write severities = [5].")
        _check_count("limit", self.limit)

    @property
    def exists_corrupted(self) -> bool:
        """Whether the data set itself takes the name of a corruption, as `cifar10-c` does."""
        return "corruption" in DATASETS[parse_spec(self.name)[0]].options

    @property
    def clean(self) -> DataChoice:
        """The same images without a corruption; where a data set exists corrupted, those in the cache."""
        entry = DATASETS[parse_spec(self.name)[0]]
        if not self.corruption_names or (self.exists_corrupted and not entry.clean):
            raise ValueError(
                f"a stream that begins and ends clean needs corruptions of a data set; {self.name} is a "
                "shift of its own, of which no clean images are known. Take another setting."
            )
        if self.exists_corrupted:
            return DataChoice(name=entry.clean, corruptions="none")
        return replace(self, corruptions="none", severities=(5,), constants=None)

    @property
    def corruption_names(self) -> tuple[str, ...]:
        """The corruptions one by one; none where the data set is the shift."""
        chosen = self.corruptions
        if chosen is None:
            chosen = "test" if self.exists_corrupted else "none"
        if isinstance(chosen, str):
            return CORRUPTION_GROUPS.get(chosen, (chosen,))
        return tuple(chosen)


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """A source model: a checkpoint, or any network that `fenchel.models.open_model` opens.

    Attributes:
        name: the network: `network.py:build`, `timm:NAME`, a checkpoint, ...
        weights: the file of its weights.
        trained_with: the loss it was trained with, or a function of one's own as `FILE.py:FUNCTION`; by
            default the one that its checkpoint tells.
        logits, dim: where the logits are in what it returns, and the axis of the classes, as
            `fenchel.adapt` takes them.
    """

    name: str
    weights: str | None = None
    trained_with: str | None = None
    logits: str | int | None = None
    dim: int | None = None

    def __post_init__(self) -> None:
        for field_name in ("name", "weights", "trained_with"):
            value = getattr(self, field_name)
            if not isinstance(value, str) and (value is not None or field_name == "name"):
                raise TypeError(f"{field_name} of a model is a text; got {value!r}.")
        if isinstance(self.logits, str):
            object.__setattr__(self, "logits", key_or_index(self.logits))
        Scores(self.logits, self.dim)  # refuses what no adapter takes


@dataclass(frozen=True, kw_only=True)
class MethodChoice:
    """A method and the grid of its settings: one value is a grid of one.

    Attributes:
        name: a registered method, or `eta:objective=entropy`: with options it is a row of its own in tables.
        grid: setting -> values. Settings of `fenchel.adapt` (`learning_rate`, `temperature`, `optimizer`,
            `steps`, `parameters`, `predict`, `statistics`, `episodic`, `protect`), options of the method, and
            `settings`, the name of a data set for which its authors published theirs.
        tuned: a file written by `fenchel tune`, which supplies the tuned settings.
        title: what tables call it, where that is not its name.
    """

    name: str
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tuned: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        kind = METHODS[self.method]
        if self.options.keys() & self.grid.keys():
            twice = ", ".join(sorted(self.options.keys() & self.grid.keys()))
            raise ValueError(
                f"{twice} of {self.name!r} is given twice, in its name and as a setting."
            )
        for option in self.options:
            if option not in kind.options():
                raise unknown(f"option of method {self.method!r}:", option, kind.options())
        for setting, values in self.grid.items():
            if not values:
                raise ValueError(
                    f"a grid needs at least one value; {setting} of {self.name} has none. Leave it out "
                    "for the default."
                )
        if not isinstance(self.title, str | None):
            raise TypeError(f"the title of a method is a text; got {self.title!r}.")

    @property
    def method(self) -> str:
        """The method itself, without the options behind its name."""
        return parse_spec(self.name)[0]

    @property
    def options(self) -> dict[str, Any]:
        """The options behind the name."""
        return parse_spec(self.name)[1]

    def settings(self) -> Iterator[dict[str, Any]]:
        """Every combination of the grid, the last setting changing fastest, with the options of the name."""
        for values in product(*self.grid.values()):
            yield {**self.options, **dict(zip(self.grid, values, strict=True))}


@dataclass(frozen=True, kw_only=True)
class StreamChoice:
    """The protocol of every cell; the settings of `fenchel.adapt` here are defaults of the methods.

    None leaves `predict` and `statistics` to each method: after the update and of the batch, unless it was
    made for others.
    """

    setting: str = "reset"
    rounds: int = DEFAULT_ROUNDS
    bursts: str = DEFAULT_BURSTS
    order: str = "shuffled"
    concentration: float = 0.1
    batch_size: int = DEFAULT_BATCH_SIZE
    predict: str | None = None
    statistics: Statistics | None = None
    episodic: bool = False

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise unknown("setting", self.setting, SETTINGS)
        if self.order not in ORDERS:
            raise unknown("order", self.order, ORDERS)
        if self.predict not in (None, "after", "before"):
            raise unknown("predict", self.predict, ("after", "before"))
        if not self.concentration > 0:
            raise ValueError(f"the concentration must be positive; got {self.concentration!r}.")
        _check_count("batch_size", self.batch_size)
        _check_count("rounds", self.rounds)
        parse_bursts(self.bursts)
        if self.statistics is not None:
            check_statistics(self.statistics)
        if not isinstance(self.episodic, bool):
            raise TypeError(f"episodic is true or false; got {self.episodic!r}.")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A whole sweep. Checkpoints, and the files of `models`, are paths relative to `folder`."""

    data: Sequence[DataChoice]
    methods: Sequence[MethodChoice]
    checkpoints: Sequence[str] = ()
    models: Sequence[ModelChoice] = ()
    seeds: Sequence[int] = (0,)
    stream: StreamChoice = field(default_factory=StreamChoice)
    folder: Path = Path()
    plugins: Sequence[str] = ()
    """Python files, relative to `folder`, that bring methods and the like of one's own."""

    def __post_init__(self) -> None:
        load_plugins(self.folder / name for name in self.plugins)
        for name in ("data", "sources", "methods", "seeds"):
            if not getattr(self, name):
                kind = "checkpoints or models" if name == "sources" else name
                raise ValueError(f"a sweep needs {kind}; got none. See docs/benchmark.md.")
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
                raise ValueError(f"seeds are whole numbers from 0; got {seed!r}.")

    @property
    def sources(self) -> tuple[ModelChoice, ...]:
        """Every source model: the checkpoints, then the others."""
        return (*(ModelChoice(name=name) for name in self.checkpoints), *self.models)


def _check_count(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}.")
