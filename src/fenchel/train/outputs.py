"""What a network returns for the first images, before it is trained on or learned for."""

from __future__ import annotations

from torch import Tensor, nn

from fenchel.adapters import Scores
from fenchel.data.stream import Shift, Stream
from fenchel.models.feeding import FOR_DATA, describe, try_out


def first_images(shift: Shift, device: str = "cpu", count: int = 2) -> Tensor:
    """The first images of a shift, as a stream feeds them."""
    stream = Stream(shifts=[shift], order="stored", batch_size=count, device=device)
    return next(iter(stream)).inputs


def logits_of(network: nn.Module, inputs: Tensor, where: Scores | None = None) -> Tensor:
    """The logits (samples, classes) for some images; a network that cannot give them is refused."""
    output = try_out(network, inputs, advice=FOR_DATA)
    return one_row_per_sample((where or Scores())(output), len(inputs))


def require_logits(network: nn.Module, inputs: Tensor, classes: int) -> None:
    """Refuse a network that does not return a tensor of logits (samples, `classes`)."""
    output = try_out(network, inputs, advice=FOR_DATA)
    if not isinstance(output, Tensor) or output.shape != (len(inputs), classes):
        found = describe(output) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"the network must return logits of shape ({len(inputs)}, {classes}) for {len(inputs)} images of "
            f"{classes} classes; it returned {found}. Give it a last layer of that width, or an argument "
            "called classes, which is then filled in."
        )


def one_row_per_sample(logits: Tensor, samples: int) -> Tensor:
    """Logits (samples, classes); axes of length one between the two are taken out.

    What is scored is one prediction per image.
    """
    if logits.ndim < 2 or logits.shape[0] != samples or logits.shape[1:-1].numel() != 1:
        raise ValueError(
            f"one prediction per image is scored, from logits (samples, classes); for {samples} images the "
            f"model returned {describe(logits)}. Pass logits= and dim= to say where they are."
        )
    return logits.reshape(samples, logits.shape[-1])
