"""Where the pixels of a model's images lie: whatever changes images by what they show needs to know."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class KnowsPixels:
    """The options of methods and objectives that make views of images.

    `input_range=(low, high)` for images such as (0, 1), or the `mean` and `std` by which images in
    [0, 1] were normalised before the model.
    """

    input_range: tuple[float, float] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.mean is None) != (self.std is None):
            raise ValueError(f"{name} needs mean and std together; got only one of them.")
        if self.std is not None and not all(0 < value < math.inf for value in self.std):
            raise ValueError(f"{name} needs every std > 0; got {self.std!r}.")
        if self.input_range is not None and self.mean is not None:
            raise ValueError(f"{name} takes input_range, or mean and std; got both.")
        if self.input_range is not None and not self.input_range[0] < self.input_range[1]:
            raise ValueError(
                f"{name} needs input_range=(low, high) with low < high; got {self.input_range!r}."
            )

    def changed(self, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Images of the model's range, changed by a function of pixels in [0, 1]."""
        offset, scale = self._pixel_map(x)
        # The adapter leaves out samples with NaNs, but no operation may stumble over them.
        pixels = ((x - offset) / scale).clamp(0, 1).nan_to_num()
        return change(pixels) * scale + offset

    def require_pixels(self) -> None:
        """Refuse images whose range is not known."""
        if self.input_range is None and self.mean is None:
            raise ValueError(
                "views of images need to know the range of the input's pixels. Pass input_range=(0, 1), or "
                "mean= and std= if images in [0, 1] are normalised before the model."
            )

    def _pixel_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Offset and scale with x = pixels * scale + offset, pixels in [0, 1]."""
        self.require_pixels()
        if x.ndim != 4 or not x.dtype.is_floating_point:
            raise ValueError(
                f"views need float images (samples, channels, height, width); got {x.dtype} of shape "
                f"{tuple(x.shape)}."
            )
        if self.input_range is not None:
            low, high = self.input_range
            return torch.as_tensor(low).to(x), torch.as_tensor(high - low).to(x)
        per_channel = []
        for name, value in (("mean", self.mean or ()), ("std", self.std or ())):
            if len(value) not in (1, x.shape[1]):
                raise ValueError(
                    f"{type(self).__name__} needs one {name} per channel; got {len(value)} for images of "
                    f"{x.shape[1]} channels. Pass as many as the images have."
                )
            per_channel.append(torch.tensor(value).to(x)[:, None, None])
        mean, std = per_channel
        return -mean / std, 1 / std
