"""Methods that move nothing: they predict from the features that the head is given."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.method import Method
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import Tensors
from fenchel.losses import Loss
from fenchel.objectives.base import require_one_of_many

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, kw_only=True)
class FeatureMethod(Method, ABC):
    """Another prediction from the features and logits of the source model, as it is unless told otherwise.

    Classes are probabilities of a softmax here, so losses with several labels per sample are refused.
    """

    shares_batches: ClassVar[bool] = True
    moves: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Any]] = {"statistics": "source"}

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        require_one_of_many(cls, loss)
        return super().made_for(loss, **options)

    def trained_with(self, loss: Loss | None) -> Self:
        require_one_of_many(type(self), loss)
        return self

    def seen(self, passes: Passes, theta: Tensors, batch: Inputs) -> tuple[Tensor, Tensor]:
        """Features, (samples, features), and logits, (samples, classes), in single precision at least."""
        features, logits = passes.features(theta, batch)
        if logits.ndim != 2 or features.ndim != 2 or logits.shape[-1] < 2:
            raise ValueError(
                f"{type(self).__name__} needs one vector of features and the scores of two classes or more "
                f"per sample; got features of shape {tuple(features.shape)} and logits of shape "
                f"{tuple(logits.shape)}. Name the layer that makes the logits with features=, or use "
                "method='conjugate'."
            )
        return raised(features), raised(logits)

    def shown(self, passes: Passes, theta: Tensors, batch: Inputs, logits: Tensor) -> Any:
        """The model's output with other logits, in the precision of its own."""
        output = passes.output(theta, batch)
        return passes.with_logits(output, logits.to(passes.scores(output).dtype))


def raised(tensor: Tensor) -> Tensor:
    """Half precision as single precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
