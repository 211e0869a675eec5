"""An objective that was learned: the values of a small network, read from a file."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import safetensors.torch
import torch
from torch import Tensor
from torch.func import functional_call

from fenchel.files import read_described
from fenchel.losses import Loss
from fenchel.names import register
from fenchel.objectives.base import Objective
from fenchel.objectives.loss_network import LossNetwork
from fenchel.options import REQUIRED

FORMAT = "fenchel-learned-objective-1"
_SWAPPING = threading.Lock()
"""Held while a network runs on tensors that are not its own: no two threads may do so at once."""


@final
@register("learned")
@dataclass(frozen=True, eq=False, repr=False)
class LearnedObjective(Objective):
    """An objective learned by `fenchel meta train`: m(h / temperature), m a `LossNetwork`.

    `protocol` says how it was learned. Two are equal if their temperatures and the weights and sizes
    of their networks are. It follows the logits to their device and precision, wherever the network
    itself lies.

    >>> objective = LearnedObjective(LossNetwork(classes=3, embedding=16), temperature=2.0)
    >>> objective(torch.zeros(5, 3)).shape
    torch.Size([5])
    """

    network: LossNetwork
    protocol: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.network, LossNetwork):
            raise TypeError(
                f"LearnedObjective needs a LossNetwork; got {type(self.network).__name__}. "
                "Read a saved one with LearnedObjective.load(path)."
            )

    def value(self, h: Tensor) -> Tensor:
        own = self.network.embed.weight
        dtype = torch.promote_types(h.dtype, own.dtype)
        with torch.autocast(device_type=h.device.type, enabled=False):
            if (own.device, own.dtype) == (h.device, dtype):
                values: Tensor = self.network(h.to(dtype))
            else:
                moved = {n: p.to(h.device, dtype) for n, p in self.network.named_parameters()}
                with _SWAPPING:
                    values = functional_call(self.network, moved, (h.to(dtype),))
        return values

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options: the `path` of the file, and the `digest` of its content, which records hold."""
        return {"path": REQUIRED, "digest": None}

    @classmethod
    def made_for(
        cls,
        loss: Loss | None,
        *,
        title: str | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> LearnedObjective:
        """The objective saved at `path`; with a `digest`, a file whose content has changed is refused."""
        cls.check_options(title or "learned", options)
        path, digest = options["path"], options.get("digest")
        found = LearnedObjective.load(path, temperature=temperature)
        if digest is not None and digest != found.digest:
            raise ValueError(
                f"the objective at {str(path)!r} must be the one with digest {digest!r}; it has "
                f"{found.digest!r}. Put the recorded file back, or plan anew."
            )
        return found

    def settings(self) -> dict[str, Any]:
        """The digest of the network; the path is left out, since the file there may change."""
        return {"digest": self.digest}

    @property
    def digest(self) -> str:
        """A hash of the network's sizes and weights."""
        hasher = hashlib.blake2b(json.dumps(self.network.sizes).encode(), digest_size=16)
        for name, tensor in sorted(self.network.state_dict().items()):
            hasher.update(f"{name} {tensor.dtype}".encode())
            hasher.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return hasher.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedObjective) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.network.sizes.items())
        return (
            f"LearnedObjective({sizes}, digest={self.digest[:12]!r}, "
            f"temperature={self.temperature!r})"
        )

    def _identity(self) -> tuple[float, str]:
        return self.temperature, self.digest

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all; equal objectives give equal bytes."""
        described = {
            "format": FORMAT,
            "sizes": self.network.sizes,
            "temperature": self.temperature,
            "protocol": self.protocol,
        }
        tensors = {n: t.detach().cpu().contiguous() for n, t in self.network.state_dict().items()}
        # One entry: the library writes several in a random order.
        metadata = {"fenchel": json.dumps(described, sort_keys=True)}
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        part.write_bytes(safetensors.torch.save(tensors, metadata))
        os.replace(part, target)

    @staticmethod
    def load(path: str | Path, *, temperature: float | None = None) -> LearnedObjective:
        """Read what `save` wrote; `temperature` replaces the saved one. No code from the file runs."""
        described, tensors = read_described(
            path,
            what="a learned objective",
            form=FORMAT,
            remedy="Learn one with `fenchel meta train`, or check the path.",
        )
        return _built(described, tensors, Path(path), temperature)


def _built(
    described: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    file: Path,
    temperature: float | None,
) -> LearnedObjective:
    try:
        with torch.random.fork_rng(devices=[]):
            network = LossNetwork(**described["sizes"])
        network.to(next(iter(tensors.values())).dtype)
        network.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError, StopIteration) as error:
        raise ValueError(
            f"a learned objective holds the sizes of its network and fitting weights; {str(file)!r} "
            f"is damaged ({type(error).__name__}: {error}). Learn it again."
        ) from error
    return LearnedObjective(
        network.requires_grad_(False).eval(),
        described.get("protocol", {}),
        temperature=described.get("temperature", 1.0) if temperature is None else temperature,
    )
