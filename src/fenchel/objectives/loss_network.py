"""The network behind a learned objective: a transformer over class tokens, then a small head."""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

EMBEDDINGS = (16, 32, 64)
FEED_FORWARDS = (32, 64, 128)
DEPTHS = (1, 2)


class LossNetwork(nn.Module):
    """Scores (..., classes) -> one value per sample (...).

    Token k is `logit_k * w + b + position_k`; encoder layers let the tokens see one another, and a
    head with `hidden_layers` hidden layers reads them all at once. There is no dropout: an objective
    is a function, and equal logits must have equal values. Attention is written out, since fused
    kernels do not all have the second derivative that meta-learning needs.

    A `symmetric` network treats all classes alike: its tokens have no positions, and the head reads
    their mean. No preference for a class can be learned, and the order of the logits does not matter.

    >>> import torch
    >>> LossNetwork(classes=10, embedding=16)(torch.zeros(5, 10)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        *,
        classes: int,
        embedding: int = 32,
        feed_forward: int = 64,
        layers: int = 1,
        heads: int = 4,
        hidden_layers: int = 1,
        symmetric: bool = False,
    ) -> None:
        super().__init__()
        if classes < 2:
            raise ValueError(
                f"a learned objective needs at least 2 classes; got {classes}. "
                "For one score, use an objective derived from the loss."
            )
        _require("embedding", embedding, EMBEDDINGS)
        _require("feed_forward", feed_forward, FEED_FORWARDS)
        _require("layers", layers, DEPTHS)
        _require("hidden_layers", hidden_layers, DEPTHS)
        _require("heads", heads, [n for n in range(1, embedding + 1) if embedding % n == 0])
        self.sizes = {
            "classes": classes,
            "embedding": embedding,
            "feed_forward": feed_forward,
            "layers": layers,
            "heads": heads,
            "hidden_layers": hidden_layers,
        }
        if symmetric:  # files without the entry are older than it
            self.sizes["symmetric"] = True
        self.embed = nn.Linear(1, embedding)
        self.position = None if symmetric else nn.Embedding(classes, embedding)
        self.encoder = nn.Sequential(
            *(EncoderLayer(embedding, feed_forward, heads) for _ in range(layers))
        )
        widths = [embedding if symmetric else classes * embedding] + [feed_forward] * hidden_layers
        hidden: list[nn.Module] = []
        for before, after in pairwise(widths):
            hidden += [nn.Linear(before, after), nn.GELU()]
        self.head = nn.Sequential(*hidden, nn.Linear(widths[-1], 1))

    def forward(self, h: Tensor) -> Tensor:
        """The value of every sample."""
        classes = self.sizes["classes"]
        if h.shape[-1] != classes:
            raise ValueError(
                f"this objective was learned for {classes} classes on the last axis; got scores of "
                f"shape {tuple(h.shape)}. Learn one for that number of classes."
            )
        tokens = self.embed(h.reshape(-1, classes, 1))
        if self.position is None:
            read = self.encoder(tokens).mean(1)
        else:
            read = self.encoder(tokens + self.position.weight).flatten(1)
        values: Tensor = self.head(read)
        return values.reshape(h.shape[:-1])


class EncoderLayer(nn.Module):
    """Self-attention and a two-layer perceptron, each on normalised tokens and added to the plain ones.

    Normalising what comes out instead would let the head see directions of tokens only: the value
    would go flat, or change at once, a few units away from zero, where logits still matter.
    """

    def __init__(self, embedding: int, feed_forward: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(embedding, 3 * embedding)
        self.merge = nn.Linear(embedding, embedding)
        self.before_attention = nn.LayerNorm(embedding)
        self.perceptron = nn.Sequential(
            nn.Linear(embedding, feed_forward), nn.GELU(), nn.Linear(feed_forward, embedding)
        )
        self.before_perceptron = nn.LayerNorm(embedding)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, tokens, embedding) -> the same shape."""
        tokens = tokens + self._attend(self.before_attention(tokens))
        out: Tensor = tokens + self.perceptron(self.before_perceptron(tokens))
        return out

    def _attend(self, tokens: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        split = self.project(tokens).reshape(batch, count, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        mixed = F.softmax(scores, dim=-1) @ value
        merged: Tensor = self.merge(mixed.transpose(1, 2).reshape(batch, count, width))
        return merged


def _require(name: str, value: int, allowed: Collection[int]) -> None:
    if value not in allowed:
        raise ValueError(
            f"{name} of a loss network is one of {', '.join(map(str, allowed))}; got {value!r}. "
            "Choose one of these."
        )
