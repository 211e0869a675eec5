"""Fisher information: how much each parameter mattered to the source model, from images without labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from fenchel.adapters.core import Core, Settings
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.method import OpenPasses
from fenchel.adapters.normalization import Statistics
from fenchel.adapters.optimizers import SGD
from fenchel.adapters.outputs import Scores, Where
from fenchel.adapters.parameters import Selection
from fenchel.adapters.state import Tensors
from fenchel.files import read_described, safetensors_bytes, tensors_digest, write_atomically
from fenchel.losses import CrossEntropy
from fenchel.methods.descent import Descent
from fenchel.objectives import Entropy

FORMAT = "fenchel-fisher-1"
BATCH_SIZE = 64


@dataclass(frozen=True, eq=False)
class Fisher:
    """The importance of every moving parameter, by its name; `path` is the file it came from."""

    tensors: Mapping[str, Tensor] = field(repr=False)
    images: int
    path: str | None = None

    @property
    def digest(self) -> str:
        """A hash of names and numbers."""
        return tensors_digest(self.tensors)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all."""
        described = {"fenchel": json.dumps({"format": FORMAT, "images": self.images})}
        tensors = {name: tensor.detach().cpu() for name, tensor in self.tensors.items()}
        write_atomically(path, safetensors_bytes(tensors, described))

    @staticmethod
    def load(path: str | Path) -> Fisher:
        """Read what `save` wrote. No code from the file runs."""
        described, tensors = read_described(
            path,
            what="Fisher information",
            form=FORMAT,
            remedy="Make it with fenchel.methods.fisher(model, images).save(path), or check the path.",
        )
        return Fisher(tensors, int(described.get("images", 0)), str(path))


def fisher(
    model: nn.Module,
    images: Tensor,
    *,
    batch_size: int = BATCH_SIZE,
    statistics: Statistics = "batch",
    parameters: Selection = "normalization",
    logits: Where | None = None,
    dim: int | None = None,
) -> Fisher:
    """The Fisher information of a model's moving parameters, from images of its source.

    It is the mean over batches of the squared gradient of the cross-entropy at the predicted class: no
    label is needed. The other arguments are those of `fenchel.adapt`, and must agree with it.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> sorted(fisher(model, torch.randn(200, 4)).tensors)
    ['1.bias', '1.weight']
    """
    settings = Settings(
        method=Descent(objective=Entropy()),
        optimizer=SGD(),
        statistics=statistics,
        parameters=parameters,
        logits=Scores(logits, dim),
    )
    core = Core.of(model, settings)
    return measured(partial(core.step.passes, core.initial_state()), images, batch_size)


@torch.inference_mode(False)
def measured(on_source: OpenPasses, images: Tensor, batch_size: int = BATCH_SIZE) -> Fisher:
    """The Fisher information of the moving parameters, from passes over images of the source."""
    if images.ndim < 2 or len(images) == 0:
        raise ValueError(
            "Fisher information needs a tensor of source images, (samples, ...), with at least one; got "
            f"shape {tuple(images.shape)}."
        )
    batches = torch.split(images, batch_size)
    sums: Tensors = {}
    for part in batches:
        squares = _squared_gradient(on_source, part)
        sums = {name: sums.get(name, 0) + value for name, value in squares.items()}
    return Fisher({name: value / len(batches) for name, value in sums.items()}, len(images))


def _squared_gradient(on_source: OpenPasses, images: Tensor) -> Tensors:
    """The squared gradient of the cross-entropy at the predicted classes of a batch."""
    with torch.no_grad(), on_source(Inputs((images,), {})) as passes:
        device = next(iter(passes.source.values())).device
        batch = passes.batch.with_samples(images.to(device))

        def surprise(theta: Tensors) -> Tensor:
            logits = passes.logits(theta, batch)
            return CrossEntropy()(logits, logits.argmax(-1)).mean()

        found = passes.gradient(surprise, passes.source).tensors
    return {name: value.square() for name, value in found.items()}
