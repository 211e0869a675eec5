"""Objects that are built by name: frozen dataclasses whose fields are what users may set.

Command lines, sweeps, listings and records all read the options of a method or objective off its class.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fenchel.facts import Cost, Published
from fenchel.names import unknown

if TYPE_CHECKING:
    from typing_extensions import Self

REQUIRED = dataclasses.MISSING
"""Marks an option that has no default."""


def key_or_index(text: str) -> str | int:
    """Where the logits are in what a network returns, as users write it: a key, or a position.

    >>> key_or_index("scores"), key_or_index("0"), key_or_index("-1")
    ('scores', 0, -1)
    """
    return int(text) if text.removeprefix("-").isdigit() else text


class Configurable:
    """What a method and an objective share: they are made from options, for a model's training loss.

    A field called `loss` is filled with the loss that the model was trained with. A field called
    `temperature` is common to all of them and no option of its own.
    """

    NOT_OPTIONS: ClassVar[tuple[str, ...]] = ("loss", "temperature")
    cost: ClassVar[Cost | None] = None
    """Its passes and what it needs; None if nobody said."""
    paper: ClassVar[str] = ""
    """Where it was published: authors, title, venue, year, number on arXiv."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings of `adapt` that it was made for (`statistics`, `parameters`, ...); the user's own win."""
    published: ClassVar[Published] = {}
    """What its authors used per data set: `adapt(..., settings="cifar10")`. The user's own win."""

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options by name with their defaults; `REQUIRED` where there is none."""
        return {
            field.name: field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
            if field.init and field.name not in cls.NOT_OPTIONS
        }

    @classmethod
    def published_for(cls, data: str | None, *, title: str) -> dict[str, Any]:
        """The published settings for a data set: options of its own, and settings of `adapt`."""
        if data is None:
            return {}
        if data not in cls.published:
            raise unknown(f"published settings of method {title!r}:", data, cls.published)
        return dict(cls.published[data])

    @classmethod
    def needs_options(cls) -> bool:
        """Whether it has options without a default, such as a file."""
        return REQUIRED in cls.options().values()

    @classmethod
    def needs_loss(cls) -> bool:
        """Whether it is derived from the training loss."""
        return any(field.name == "loss" for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    @classmethod
    def made_for(
        cls,
        loss: Any,
        *,
        title: str | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> Self:
        """An instance for a model trained with `loss` (None: not known); errors call it `title`."""
        title = title or cls.__name__
        cls.check_options(title, options)
        given = dict(options)
        fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        if "loss" in fields:
            if loss is None:
                raise ValueError(
                    f"method {title!r} is derived from the loss the model was trained with, which was not "
                    "given. Pass trained_with=, for example trained_with=fenchel.CrossEntropy()."
                )
            given["loss"] = loss
        if temperature is not None and "temperature" in fields:
            given["temperature"] = temperature
        return cls(**given)

    @classmethod
    def check_options(cls, title: str, options: Mapping[str, Any]) -> None:
        """Refuse options that it does not have, and the lack of those without a default."""
        known = cls.options()
        for name in options:
            if name not in known:
                raise unknown(f"option of method {title!r}:", name, known)
        for name, default in known.items():
            if default is REQUIRED and name not in options:
                raise ValueError(
                    f"method {title!r} needs the option {name}=, which has no default."
                )

    def settings(self) -> dict[str, Any]:
        """The values of its options: what `made_for` needs to make it again."""
        return {name: getattr(self, name) for name in self.options()}

    @classmethod
    def summary(cls) -> str:
        """One line for listings: the first line of the class's own docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]
