"""What a model's scores say of the classes: probabilities, by the loss that the model was trained with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel.losses import Loss, OneOfMany

ALIKE = 1e-5
"""Predictions that differ by less, of the largest number in them, are those of the same image."""


def are_copies(predictions: Tensor) -> Tensor:
    """Whether a batch of scores or probabilities, (samples, classes), is one image several times.

    Such a batch, as of a sensor that blacks out, shows no classes.
    """
    if len(predictions) < 2:
        return torch.zeros((), dtype=torch.bool, device=predictions.device)
    found = predictions.detach()
    return (found - found[0]).abs().amax() < ALIKE * found.abs().amax()


@dataclass(frozen=True)
class Probabilities:
    """The conjugate label of the training loss, as a distribution over the classes.

    For cross-entropy that is the softmax. For the squared loss it is the scores themselves, which lie near 0
    and 1, so that their softmax would be nearly flat. One score stands for two classes. None where nothing
    of the kind exists: for labels that may hold together, or for more than one prediction per sample.
    """

    loss: Loss | None = None

    def __call__(self, logits: Tensor) -> Tensor | None:
        """(samples, scores) -> (samples, classes)."""
        if logits.ndim != 2:
            return None
        logits = logits.detach()
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        if logits.shape[-1] == 1:
            return torch.cat([-logits, logits], -1).softmax(-1)
        loss = self.loss
        if loss is None:
            return logits.softmax(-1)
        if not isinstance(loss.labels, OneOfMany):
            return None
        if type(loss)._label is Loss._label:  # to be solved for: too slow for every batch
            return logits.softmax(-1)
        label = loss.label(logits).clamp_min(0)
        return label / label.sum(-1, keepdim=True).clamp_min(1e-12)
