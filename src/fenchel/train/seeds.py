"""Randomness by counter: every draw is a function of the seed and of where it is used.

No generator lives longer than one step, so a run that continues from a file needs no random state:
epoch 7, step 31 draws the same numbers whether or not epoch 6 ran in this process.
"""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, *place: str | int) -> int:
    """A 63-bit seed for one place, such as `("order", epoch)`.

    >>> derive_seed(0, "order", 1) != derive_seed(0, "order", 2)
    True
    """
    text = "/".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *place: str | int) -> torch.Generator:
    """A fresh CPU generator for one place (on the CPU for every device: the same draws)."""
    return torch.Generator().manual_seed(derive_seed(seed, *place))
