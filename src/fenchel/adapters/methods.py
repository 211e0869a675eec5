"""The named methods of the paper: which objective, and which statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fenchel.losses import Loss, OneOfMany
from fenchel.names import Registry
from fenchel.objectives import (
    Conjugate,
    Entropy,
    HardPseudoLabel,
    MarginalEntropy,
    Objective,
    RobustPseudoLabel,
    SoftPseudoLabel,
)
from fenchel.objectives.learned import LearnedObjective


@dataclass(frozen=True)
class Method:
    """A name for an objective made from the training loss; `None` means that no parameter moves."""

    name: str
    summary: str
    build: Callable[..., Objective | None]
    """(loss, **options) -> objective; the options are the objective's own fields."""
    needs_loss: bool = False
    source_statistics: bool = False
    """Whether the source's statistics are used whatever was asked for."""
    options: tuple[str, ...] = ()
    """The options of a method that cannot be built without some."""


class Methods(Registry[Method]):
    """All named methods. Those that need a file of the user's are found by name, but not iterated
    over: whoever runs every method builds each from a loss alone.
    """

    def __getitem__(self, name: str) -> Method:
        return FROM_FILES[name] if name in FROM_FILES else super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return name in FROM_FILES or super().__contains__(name)


METHODS = Methods("method", group="fenchel.methods")


def _add(
    name: str,
    summary: str,
    build: Callable[..., Objective | None],
    *,
    needs_loss: bool = False,
    source_statistics: bool = False,
) -> None:
    METHODS.add(name, Method(name, summary, build, needs_loss, source_statistics))


def _nothing(loss: Loss | None) -> None:
    return None


def _entropy(loss: Loss | None, **options: Any) -> Objective:
    if loss is not None and not isinstance(loss.labels, OneOfMany):
        options.setdefault("activation", "sigmoid")
    return Entropy(**options)


def _hard(loss: Loss, **options: Any) -> Objective:
    if not isinstance(loss.labels, OneOfMany):
        options.setdefault("threshold", None)  # the paper's binary baseline keeps every sample
    return HardPseudoLabel(loss, **options)


def _learned(
    loss: Loss | None, *, path: str | Path, digest: str | None = None, temperature: float = 1.0
) -> Objective:
    """The objective saved at `path`; at a temperature of 1 it keeps the one it was saved with.

    With a `digest`, as records have it, a file whose content has changed is refused.
    """
    found = LearnedObjective.load(path, temperature=None if temperature == 1 else temperature)
    if digest is not None and digest != found.digest:
        raise ValueError(
            f"the objective at {str(path)!r} must be the one with digest {digest!r}; it has "
            f"{found.digest!r}. Put the recorded file back, or plan anew."
        )
    return found


def _over_classes(objective: type[Objective]) -> Callable[..., Objective]:
    """An objective that only makes sense for one class out of C."""

    def build(loss: Loss | None, **options: Any) -> Objective:
        if loss is not None and not isinstance(loss.labels, OneOfMany):
            raise ValueError(
                f"{objective.__name__} is defined for one class out of C; {loss!r} has labels of another "
                "kind. Use method='conjugate', 'entropy', 'hard' or 'soft'."
            )
        return objective(**options)

    return build


_add("source", "the model as it is", _nothing, source_statistics=True)
_add("bn", "batch statistics, no update", _nothing)
_add("entropy", "entropy of the prediction (TENT)", _entropy)
_add("hard", "most likely label above a confidence threshold", _hard, needs_loss=True)
_add("soft", "predicted probabilities as the label", SoftPseudoLabel, needs_loss=True)
_add(
    "robust", "generalised cross-entropy at the most likely class", _over_classes(RobustPseudoLabel)
)
_add("memo", "entropy of the mean over AugMix views (MEMO)", _over_classes(MarginalEntropy))
_add("conjugate", "the training loss at its conjugate pseudo-label", Conjugate, needs_loss=True)

FROM_FILES = {
    "learned": Method(
        "learned",
        "an objective learned by `fenchel meta train` (path=)",
        _learned,
        options=("path", "digest"),
    )
}
