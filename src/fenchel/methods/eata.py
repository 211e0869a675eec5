"""EATA: ETA, and important parameters stay near the source."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.method import OpenPasses
from fenchel.adapters.passes import LossFunction, Passes
from fenchel.adapters.state import State, Tensors
from fenchel.facts import Cost, Published
from fenchel.losses import Loss
from fenchel.methods.eta import PAPER
from fenchel.methods.gated import ReliableAndNew
from fenchel.methods.importance import Fisher, measured
from fenchel.names import register

if TYPE_CHECKING:
    from typing_extensions import Self

_PREFIX = "fisher."


@final
@register("eata")
@dataclass(frozen=True, kw_only=True)
class Eata(ReliableAndNew):
    """ETA, plus anchor x sum F (theta - source)^2 with the Fisher information F of source images.

    F comes from `source_images=` of `adapt`, of which it takes the first `fisher_images`, or ready from
    `fisher=`: a `Fisher`, or a file that `fenchel.methods.fisher(...).save` wrote. No label is needed.
    """

    cost: ClassVar[Cost | None] = Cost(
        forward="1",
        backward="1",
        memory="Fisher information, source parameters, mean prediction",
        needs_source_data=True,
    )
    paper: ClassVar[str] = PAPER
    published: ClassVar[Published] = {
        "cifar10": {
            "anchor": 1.0,
            "similarity": 0.4,
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "predict": "before",
        },
        "imagenet": {
            "anchor": 2000.0,
            "similarity": 0.05,
            "optimizer": "sgd",
            "learning_rate": 2.5e-4,
            "predict": "before",
        },
    }

    anchor: float = 1.0
    fisher: Fisher | str | Path | None = None
    fisher_digest: str | None = None
    fisher_images: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.anchor >= 0 or self.fisher_images < 1:
            raise ValueError(
                "Eata needs anchor >= 0 and fisher_images >= 1; got "
                f"anchor={self.anchor!r}, fisher_images={self.fisher_images!r}."
            )

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        """With a `fisher_digest`, a file whose content has changed is refused."""
        made = super().made_for(loss, **options)
        if not isinstance(made.fisher, str | Path):
            return made
        found = Fisher.load(made.fisher)
        if made.fisher_digest not in (None, found.digest):
            raise ValueError(
                f"the Fisher information at {str(made.fisher)!r} must be the one with digest "
                f"{made.fisher_digest!r}; it has {found.digest!r}. Put the recorded file back, or plan anew."
            )
        return dataclasses.replace(made, fisher=found, fisher_digest=found.digest)

    def settings(self) -> dict[str, Any]:
        """The values of its options; Fisher information from a file by the file's name and digest."""
        found = super().settings()
        if isinstance(self.fisher, Fisher) and self.fisher.path is not None:
            found["fisher"] = self.fisher.path
        return found

    def prepared(self, on_source: OpenPasses, images: Tensor | None) -> Self:
        """With the Fisher information of the source images, unless it is there already."""
        if isinstance(self.fisher, str | Path):
            return dataclasses.replace(self, fisher=Fisher.load(self.fisher))
        if self.fisher is not None:
            return self
        if images is None:
            raise ValueError(
                "method 'eata' needs the Fisher information of source images; got none. Pass "
                "source_images=, a tensor of training images without labels, or fisher=, which "
                "fenchel.methods.fisher(model, images) makes. Without either, use method='eta'."
            )
        return dataclasses.replace(self, fisher=measured(on_source, images[: self.fisher_images]))

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        memory = super().start(passes, batch)
        tensors = self.fisher.tensors if isinstance(self.fisher, Fisher) else {}
        if tensors.keys() != passes.source.keys() or any(
            tensors[name].shape != value.shape for name, value in passes.source.items()
        ):
            missing = [name for name in passes.source if name not in tensors]
            raise ValueError(
                "the Fisher information must be that of the moving parameters; it has "
                f"{len(tensors)} of them, {len(passes.source)} move, and it lacks {missing[:3] or 'none'}. "
                "Make it with fenchel.methods.fisher on the same model, with the same parameters=."
            )
        importance = {
            _PREFIX + name: tensors[name].to(value) for name, value in passes.source.items()
        }
        return {**memory, **importance}

    def regularised(self, loss: LossFunction, passes: Passes, state: State) -> LossFunction:
        """The loss and the pull of the important parameters back to the source."""

        def anchored(theta: Tensors) -> tuple[Tensor, Tensor]:
            value, any_kept = loss(theta)
            for name, source in passes.source.items():
                importance = state.memory[_PREFIX + name]
                value = value + self.anchor * (importance * (theta[name] - source).square()).sum()
            return value, any_kept

        return anchored
