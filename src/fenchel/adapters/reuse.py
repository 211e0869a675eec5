"""Modules in front of everything that moves are computed once per batch.

The passes over one batch (the update's, and the prediction's after it) differ in the moving parameters
alone, so modules that none of them has reached give the same output again. In the first pass such outputs
are kept, in the later ones they are returned instead of being computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils import _pytree as pytree


class Reuse:
    """The outputs of a skeleton's unreached modules during one batch (see `normalization.skeleton`).

    Whether a moving parameter has reached an output is known from autograd: in the first pass they
    alone require gradients. An output that was modified in place since is computed again.
    """

    def __init__(self, twin: nn.Module, moving: Collection[str]) -> None:
        self._phase: Literal["off", "keeping", "returning"] = "off"
        self._kept: dict[nn.Module, list[tuple[Any, list[int]] | None]] = {}
        self._calls: dict[nn.Module, int] = {}
        for module in _largest_without(twin, "", set(moving)):
            module.forward = _Forward(self, module, module.forward)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """In the block, a first pass: keep what may be used again."""
        self._kept.clear()
        with self._in("keeping"):
            yield

    @contextmanager
    def returning(self) -> Iterator[None]:
        """In the block, a later pass over the same batch: return what was kept."""
        with self._in("returning"):
            yield

    @property
    def holds(self) -> bool:
        """Whether a first pass has left something to use again."""
        return bool(self._kept)

    def forget(self) -> None:
        """Let go of everything; called when the batch is done."""
        self._kept.clear()

    @contextmanager
    def _in(self, phase: Literal["keeping", "returning"]) -> Iterator[None]:
        self._phase = phase
        self._calls.clear()
        try:
            yield
        finally:
            self._phase = "off"

    def run(self, module: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The module's output: kept from before, or computed and perhaps kept."""
        if self._phase == "off":
            return forward(*args, **kwargs)
        call = self._calls.get(module, 0)
        self._calls[module] = call + 1
        if self._phase == "returning":
            kept = self._kept.get(module, [])
            found = kept[call] if call < len(kept) else None
            if found is not None and _versions(found[0]) == found[1]:
                return found[0]
            return forward(*args, **kwargs)
        output = forward(*args, **kwargs)
        reached = any(leaf.requires_grad for leaf in _tensors(output))
        entry = None if reached else (output, _versions(output))
        self._kept.setdefault(module, []).append(entry)
        return output


class _Forward:
    """Stands in for a module's `forward` inside the skeleton."""

    def __init__(self, reuse: Reuse, module: nn.Module, forward: Callable[..., Any]) -> None:
        self._reuse, self._module, self._forward = reuse, module, forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._reuse.run(self._module, self._forward, args, kwargs)


def _largest_without(module: nn.Module, prefix: str, moving: set[str]) -> Iterator[nn.Module]:
    """The largest modules, below the model itself, that hold no moving parameter."""
    for name, child in module.named_children():
        path = f"{prefix}{name}."
        if any(other.startswith(path) for other in moving):
            yield from _largest_without(child, path, moving)
        else:
            yield child


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]


def _versions(output: Any) -> list[int]:
    return [leaf._version for leaf in _tensors(output)]
