"""Accuracy and loss of a model on examples, without augmentation."""

from __future__ import annotations

import torch
from torch import nn

from fenchel.losses import Loss
from fenchel.train.augmentation import Augmentation
from fenchel.train.examples import Examples, prepare

BATCH = 500


@torch.no_grad()
def evaluate(
    model: nn.Module, examples: Examples, loss: Loss, augmentation: Augmentation
) -> dict[str, float]:
    """`accuracy` and mean `loss` of `model` in evaluation mode (its mode is put back after).

    Data sets that are scored by the mean accuracy over classes get that as `accuracy`.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    correct, values = [], []
    try:
        for positions in torch.split(torch.arange(len(examples)), BATCH):
            logits = model(prepare(examples.read(positions), augmentation, device))
            labels = examples.labels[positions.to(examples.labels.device)].to(device)
            correct.append((loss.labels.predictions(logits) == labels).cpu())
            values.append(loss(logits, loss.labels.targets(labels)).float().cpu())
    finally:
        model.train(was_training)
    hits = torch.cat(correct).double()
    if examples.dataset.metric == "mean-class-accuracy":
        labels = examples.labels.cpu()
        present = torch.bincount(labels)
        shares = torch.bincount(labels, weights=hits)[present > 0] / present[present > 0]
        accuracy = shares.mean()
    else:
        accuracy = hits.mean()
    return {"accuracy": accuracy.item(), "loss": torch.cat(values).double().mean().item()}
