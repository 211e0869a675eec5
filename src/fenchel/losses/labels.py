"""Label spaces: which labels a loss takes, and how a model's scores predict them.

A loss brings its own label space, because "the most likely label" and "how sure" mean different
things for one class out of C (softmax), for independent yes/no labels (sigmoid) and for one signed
score (sign).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class LabelSpace(ABC):
    """Labels y of shape (..., C) for scores h of shape (..., C)."""

    @abstractmethod
    def encode(self, compact: Tensor, h: Tensor) -> Tensor:
        """Labels in their compact form, of shape (...), written out as (..., C)."""

    @abstractmethod
    def hard(self, h: Tensor) -> Tensor:
        """The most likely label, (..., C). Piecewise constant: no gradient flows through it."""

    @abstractmethod
    def soft(self, h: Tensor) -> Tensor:
        """The mean label under the model's own probabilities, (..., C). Differentiable."""

    @abstractmethod
    def confidence(self, h: Tensor) -> Tensor:
        """The probability that the model gives to its hard label, (...)."""

    def scores(self, classes: int) -> int:
        """How many scores a model needs to tell so many classes apart."""
        return classes

    def targets(self, classes: Tensor) -> Tensor:
        """Class indices in the compact form that a loss takes."""
        return classes

    def predictions(self, h: Tensor) -> Tensor:
        """The predicted class index of every sample, (...)."""
        return h.argmax(-1)


@dataclass(frozen=True)
class OneOfMany(LabelSpace):
    """One class out of C: probabilities by softmax, compact form = class index."""

    def encode(self, compact: Tensor, h: Tensor) -> Tensor:
        if compact.dtype.is_floating_point or compact.dtype == torch.bool:
            raise TypeError(
                f"labels of shape {tuple(compact.shape)} for scores of shape {tuple(h.shape)} must "
                f"be integer class indices; got {compact.dtype}. Pass indices, or soft labels of "
                "the scores' own shape."
            )
        classes = h.shape[-1]
        # Reading the extremes waits for the device, so only the CPU is checked; CUDA asserts itself.
        if compact.device.type == "cpu" and compact.numel():
            low, high = int(compact.min()), int(compact.max())
            if low < 0 or high >= classes:
                raise ValueError(
                    f"class indices must lie in 0..{classes - 1}; got {low}..{high}. "
                    "Check the number of outputs of the model and the label encoding."
                )
        return F.one_hot(compact.long(), classes).to(h.dtype)

    def hard(self, h: Tensor) -> Tensor:
        # Not one_hot, which reads the extremes of its indices back to check them.
        return torch.zeros_like(h).scatter(-1, h.argmax(-1, keepdim=True), 1.0)

    def soft(self, h: Tensor) -> Tensor:
        return h.softmax(-1)

    def confidence(self, h: Tensor) -> Tensor:
        return h.softmax(-1).amax(-1)


@dataclass(frozen=True)
class YesOrNo(LabelSpace):
    """Independent labels in {0, 1}: probabilities by sigmoid, compact form = the one class present.

    The confidence of a sample is the mean confidence of its scores.
    """

    def encode(self, compact: Tensor, h: Tensor) -> Tensor:
        return OneOfMany().encode(compact, h)

    def hard(self, h: Tensor) -> Tensor:
        return (h > 0).to(h.dtype)

    def soft(self, h: Tensor) -> Tensor:
        return h.sigmoid()

    def confidence(self, h: Tensor) -> Tensor:
        return h.abs().sigmoid().mean(-1)


@dataclass(frozen=True)
class Signed(LabelSpace):
    """Labels in {-1, +1}, one score each: compact form = the sign without its trailing axis.

    The soft label is tanh(h), the mean under the link that the exponential loss fits,
    P(+1) = sigmoid(2h). (Under sigmoid(h) it would be tanh(h/2), at which that loss is the constant
    1: nothing would adapt.) The confidence is that of the paper's binary baselines, sigmoid(|h|).
    """

    def encode(self, compact: Tensor, h: Tensor) -> Tensor:
        return compact.unsqueeze(-1).to(h.dtype)

    def hard(self, h: Tensor) -> Tensor:
        return torch.where(h < 0, -torch.ones_like(h), torch.ones_like(h))

    def soft(self, h: Tensor) -> Tensor:
        return h.tanh()

    def confidence(self, h: Tensor) -> Tensor:
        return h.abs().sigmoid().mean(-1)

    def scores(self, classes: int) -> int:
        if classes != 2:
            raise ValueError(
                f"labels of -1 and +1 separate two classes by one score; the data have {classes}. Choose "
                "another loss."
            )
        return 1

    def targets(self, classes: Tensor) -> Tensor:
        return 2 * classes - 1

    def predictions(self, h: Tensor) -> Tensor:
        return (h[..., 0] > 0).long()
