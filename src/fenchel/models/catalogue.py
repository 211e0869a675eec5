"""The loss behind public checkpoints: what is known of those of timm, torchvision and transformers.

What is known is data, in `checkpoints.toml` beside this file; a file of the same name in the cache folder
comes first, so that anyone may add to it or correct it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from fenchel.fetching.home import home
from fenchel.models import external
from fenchel.models.preprocessing import Preprocessed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AUTO = "auto"
"""In place of a loss: the one that the catalogue knows."""
FILE = "checkpoints.toml"
NO_LOSS = ("distilled", "unknown")
CONFIDENCES = ("stated", "likely")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of the checkpoints whose names match a pattern.

    Attributes:
        name: the pattern, or the checkpoint that was asked for.
        loss: the spec of its training loss, or `distilled` or `unknown`.
        evidence: how that is known.
        confidence: `stated` by the recipe, or `likely`.
    """

    name: str
    loss: str
    evidence: str
    confidence: str = "stated"

    @property
    def is_loss(self) -> bool:
        """Whether there is a loss to derive an objective from."""
        return self.loss not in NO_LOSS

    @property
    def notice(self) -> str:
        """One line for whoever uses it."""
        sure = "was" if self.confidence == "stated" else "was likely"
        return f"{self.name} {sure} trained with {self.loss} ({self.evidence})"


def rules() -> tuple[Known, ...]:
    """Every rule in the order in which they are tried: those of the user's own file come first."""
    own = home() / FILE
    text = files("fenchel.models").joinpath(FILE).read_text("utf-8")
    mine = _read(own.read_text("utf-8"), str(own)) if own.is_file() else ()
    return (*mine, *_read(text, FILE))


def _read(text: str, origin: str) -> tuple[Known, ...]:
    try:
        found = tuple(Known(**facts) for facts in tomllib.loads(text)["checkpoints"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{origin}: a catalogue holds [[checkpoints]] with name, loss, evidence and confidence; found "
            f"{type(error).__name__}: {error}. Correct the file."
        ) from error
    for rule in found:
        if rule.confidence not in CONFIDENCES:
            raise ValueError(
                f"{origin}: confidence is {' or '.join(CONFIDENCES)}; {rule.name} has {rule.confidence!r}. "
                "Correct the file."
            )
    return found


def look_up(name: str) -> Known | None:
    """What is known of a checkpoint: `timm/resnet50.a1_in1k`, `torchvision/resnet50.IMAGENET1K_V2`, ...

    >>> look_up("timm/resnet50.a1_in1k").loss
    'binary-cross-entropy'
    """
    return _first(rules(), external.with_slash(name))


def _first(table: Iterable[Known], name: str) -> Known | None:
    """The first rule that matches, under the name that was asked for."""
    return next((replace(rule, name=name) for rule in table if fnmatchcase(name, rule.name)), None)


def name_of(model: nn.Module) -> str | None:
    """The name under which a network of timm or transformers is published; None where it does not tell.

    Networks of torchvision keep no trace of their weights.
    """
    network: Any = model.network if isinstance(model, Preprocessed) else model
    published = getattr(network, "pretrained_cfg", None)
    if isinstance(published, dict) and published.get("architecture"):
        tag = published.get("tag")
        return f"timm/{published['architecture']}" + (f".{tag}" if tag else "")
    hub = getattr(getattr(network, "config", None), "_name_or_path", "")
    is_theirs = type(network).__module__.startswith("transformers.")
    return f"transformers/{hub}" if is_theirs and hub and not Path(hub).exists() else None


def loss_behind(model: nn.Module, name: str | None = None) -> Known:
    """What is known of the loss that trained `model`; ValueError where there is none to take.

    `name` is what the user called it, for networks that do not tell their name.
    """
    asked = name_of(model) or name
    if asked is None:
        raise ValueError(
            f"trained_with={AUTO} needs a network that tells its name, as those of timm and transformers do; "
            f"{type(model).__name__} does not. Pass its loss, for example trained_with=cross-entropy."
        )
    known = look_up(asked)
    if known is not None and known.is_loss:
        return known
    reason = f"{asked} is not in the catalogue"
    if known is not None:
        reason = f"that of {asked} is {known.loss} ({known.evidence})"
    raise ValueError(
        f"trained_with={AUTO} needs a loss that is known; {reason}. Pass the one you want to assume, for "
        f"example trained_with=cross-entropy, or add a rule to {home() / FILE}."
    )


def matching(pattern: str) -> tuple[Known, ...]:
    """What is known of every checkpoint that a pattern of shell style matches, with or without its package.

    The names are those that the installed packages publish. One that none of them has is looked up as it is.
    """
    wanted = external.with_slash(pattern)
    names = [
        name
        for package in external.EXTRAS
        for name in external.published(package)
        if fnmatchcase(name, wanted) or fnmatchcase(name.partition("/")[2], wanted)
    ]
    if not names and not set("*?[") & set(wanted):
        names = [wanted]
    table = rules()
    found = (_first(table, name) for name in names)
    return tuple(known for known in found if known is not None)
