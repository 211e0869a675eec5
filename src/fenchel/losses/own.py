"""Losses by what users write: a spec of this library, or a function of their own as `FILE.py:FUNCTION`."""

from __future__ import annotations

from fenchel.losses.base import LOSSES, Loss, parse
from fenchel.own_code import read_reference


def open_loss(text: str) -> Loss:
    """The loss that `text` names; a function of (logits, soft targets) goes through `derive`.

    >>> open_loss("poly:epsilon=6")
    PolyLoss(epsilon=6)
    """
    reference = read_reference(text)
    if reference is None or text.partition(":")[0] in LOSSES:
        return parse(text)
    from fenchel.losses.derived.derive import derive  # rarely needed, slow to load
    from fenchel.losses.derived.from_torch import from_torch

    found = reference.load()
    if isinstance(found, Loss):
        return found
    if not callable(found):
        raise TypeError(
            f"{text} must be a function of (logits, targets); it is {type(found).__name__}. Name another "
            "object of that file."
        )
    return from_torch(found) or derive(found)
