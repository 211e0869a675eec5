"""MEMO in its batch version: the entropy of the prediction averaged over augmented views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from fenchel.losses import Loss
from fenchel.names import register
from fenchel.objectives.augmix import augmix
from fenchel.objectives.base import Objective, require_one_of_many

if TYPE_CHECKING:
    from typing_extensions import Self


@final
@register("memo")
@dataclass(frozen=True)
class MarginalEntropy(Objective):
    """The entropy of the mean prediction over AugMix views (MEMO): H(mean_v softmax(h_v)).

    Each view has a forward pass of its own; the clean input serves the prediction only. AugMix works on
    pixel values, so the objective must know where they lie: `input_range=(low, high)` for images such
    as (0, 1), or the `mean` and `std` by which images in [0, 1] were normalised before the model.

    Reference: Zhang et al., "MEMO: Test Time Robustness via Adaptation and Augmentation", 2022.
    """

    views: int = 3
    input_range: tuple[float, float] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.views < 1:
            raise ValueError(f"MarginalEntropy needs at least one view; got views={self.views!r}.")
        if (self.mean is None) != (self.std is None):
            raise ValueError("MarginalEntropy needs mean and std together; got only one of them.")
        if self.std is not None and not all(0 < value < math.inf for value in self.std):
            raise ValueError(f"MarginalEntropy needs every std > 0; got {self.std!r}.")
        if self.input_range is not None and self.mean is not None:
            raise ValueError("MarginalEntropy takes input_range, or mean and std; got both.")
        if self.input_range is not None and not self.input_range[0] < self.input_range[1]:
            raise ValueError(
                f"MarginalEntropy needs input_range=(low, high) with low < high; "
                f"got {self.input_range!r}."
            )

    def value(self, h: Tensor) -> Tensor:
        """`h` holds the views' scores, (V, ..., C), V = 1 included."""
        if h.ndim < 3:
            raise ValueError(
                f"MarginalEntropy needs the scores of its views, (views, samples, classes); got shape "
                f"{tuple(h.shape)}. The adapter makes them: pass the objective to fenchel.adapt."
            )
        log_mean = h.log_softmax(-1).logsumexp(0) - math.log(h.shape[0])
        return -(log_mean.exp() * log_mean).sum(-1)

    def make_views(self, x: Tensor, generator: torch.Generator) -> Tensor:
        offset, scale = self._pixel_map(x)
        # The adapter skips the update of a batch with NaNs, but no operation may stumble over them.
        pixels = ((x - offset) / scale).clamp(0, 1).nan_to_num()
        views = [augmix(pixels, generator) * scale + offset for _ in range(self.views)]
        return torch.stack(views)

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        require_one_of_many(cls, loss)
        return super().made_for(loss, **options)

    def check(self) -> None:
        """Refuse images whose pixel range is not known: making views needs it."""
        if self.input_range is None and self.mean is None:
            raise self.unknown_range()

    @staticmethod
    def unknown_range() -> ValueError:
        """The error for views of images whose range is not known."""
        return ValueError(
            "AugMix views need to know the range of the input's pixels. Pass input_range=(0, 1), or "
            "mean= and std= if images in [0, 1] are normalised before the model."
        )

    def _pixel_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Offset and scale with x = pixels * scale + offset, pixels in [0, 1]."""
        if x.ndim != 4 or not x.dtype.is_floating_point:
            raise ValueError(
                f"AugMix views need float images (samples, channels, height, width); got "
                f"{x.dtype} of shape {tuple(x.shape)}."
            )
        if self.input_range is not None:
            low, high = self.input_range
            return torch.as_tensor(low).to(x), torch.as_tensor(high - low).to(x)
        if self.mean is None or self.std is None:
            raise self.unknown_range()
        for name, value in (("mean", self.mean), ("std", self.std)):
            if len(value) not in (1, x.shape[1]):
                raise ValueError(
                    f"MarginalEntropy needs one {name} per channel; got {len(value)} for images of "
                    f"{x.shape[1]} channels. Pass as many as the images have."
                )
        mean, std = (torch.tensor(value).to(x)[:, None, None] for value in (self.mean, self.std))
        return -mean / std, 1 / std
