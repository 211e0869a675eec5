"""What a stream predicts for a batch, and what the model would have said without adaptation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fenchel.adapters import Adapter, Scores, Session
from fenchel.predict.evidence import Prediction, Predictions


def predicted(
    stream: Adapter | Session,
    where: Scores,
    inputs: Tensor,
    *,
    compares: Callable[[Prediction], bool],
) -> Predictions:
    """Adapt to a batch and predict it; where `compares` wants it, the source model predicts it too.

    Args:
        stream: what adapts.
        where: finds the logits in the model's output.
        compares: asked with the adapted prediction.
    """
    adapted = Prediction.of(scores_in(stream(inputs), where))
    if not compares(adapted):
        return Predictions(adapted)
    source = Prediction.of(scores_in(stream.source_prediction(inputs), where))
    if not stream.state.parameters:
        return Predictions(adapted, source)
    unmoved = scores_in(stream.unmoved_prediction(inputs), where)
    return Predictions(adapted, source, Prediction.of(unmoved))


def scores_in(output: Any, where: Scores) -> Tensor:
    """The scores (samples, classes) in a model's output; one score means two classes."""
    scores = where(output)
    if scores.ndim != 2:
        raise ValueError(f"image predictions need scores (N, classes); got {tuple(scores.shape)}.")
    return torch.cat([-scores, scores], dim=-1) if scores.shape[-1] == 1 else scores
