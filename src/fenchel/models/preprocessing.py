"""The preprocessing that belongs to a model: inputs in [0, 1], mean and deviation as buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

PerChannel = Sequence[float] | float | None
"""A mean or a deviation: one number per channel, one for all of them, or the default."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Preprocessing(nn.Module):
    """`(x - mean) / std` for each channel of images `(..., channels, height, width)` in [0, 1].

    Every image model of this package has one as `model.preprocessing`, so that whoever calls it
    passes plain images in `input_range`, and views, corruptions and attacks know the scale.

    >>> Preprocessing(mean=(0.5,), std=(0.25,))(torch.full((1, 1, 2, 2), 0.75)).unique()
    tensor([1.])
    """

    input_range = (0.0, 1.0)
    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise ValueError(
                "preprocessing needs a mean and a positive deviation for each channel; got "
                f"mean={list(mean)}, std={list(std)}. Give one of each per channel."
            )
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images of the same shape."""
        if images.dim() < 3 or images.shape[-3] != self.mean.shape[0]:
            raise ValueError(
                f"the model takes images (..., {self.mean.shape[0]}, height, width) in [0, 1]; "
                f"got shape {tuple(images.shape)}. Move the channels in front of the two axes."
            )
        return (images - self.mean) / self.std

    def describe(self) -> dict[str, Any]:
        """The numbers as plain values, for records."""
        return {
            "mean": self.mean.flatten().tolist(),
            "std": self.std.flatten().tolist(),
            "input_range": list(self.input_range),
        }

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        # Public weights know nothing of our two buffers: what the model was built with stays.
        own = {prefix + name: buffer for name, buffer in self.named_buffers()}
        super()._load_from_state_dict({**own, **state_dict}, prefix, *arguments)


class Preprocessed(nn.Module):
    """Any image classifier with its preprocessing in front: `network(preprocessing(x))`."""

    def __init__(self, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing = preprocessing
        self.network = network

    def forward(self, images: Tensor) -> Any:
        """What the network returns for the normalised images."""
        return self.network(self.preprocessing(images))


def for_channels(channels: int, mean: PerChannel, std: PerChannel) -> Preprocessing:
    """The preprocessing of a network with `channels` input channels; the identity by default.

    A single number stands for every channel.
    """
    return Preprocessing(_spread(mean, channels, default=0.0), _spread(std, channels, default=1.0))


def _spread(values: PerChannel, channels: int, default: float) -> list[float]:
    if values is None or isinstance(values, int | float):
        return [default if values is None else float(values)] * channels
    given = [float(value) for value in values]
    if len(given) not in (1, channels):
        raise ValueError(
            f"preprocessing needs one number or {channels} (one per channel); got {len(given)}. "
            "Give as many as the images have channels."
        )
    return given * channels if len(given) == 1 else given


def describe(model: nn.Module) -> Mapping[str, Any]:
    """The preprocessing of `model` as plain values, or an empty mapping if it has none."""
    own = getattr(model, "preprocessing", None)
    return own.describe() if isinstance(own, Preprocessing) else {}
