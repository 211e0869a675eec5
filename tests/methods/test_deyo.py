"""DeYO against a plain loop, and its shuffled patches."""

from __future__ import annotations

import contextlib

import plain_torch as plain
import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.methods.deyo import shuffled_patches


def shuffled(x: Tensor, number: int) -> Tensor:
    """4 x 4 patches of every image at other places, by the draws of batch `number` under seed 0."""
    generator = torch.Generator().manual_seed(number)
    order = torch.rand(len(x), 16, generator=generator, dtype=torch.float64).argsort(1)
    side, result = x.shape[-1] // 4, torch.empty_like(x)
    for image in range(len(x)):
        for place in range(16):
            to_row, to_column = divmod(place, 4)
            row, column = divmod(int(order[image, place]), 4)
            result[
                image,
                :,
                to_row * side : (to_row + 1) * side,
                to_column * side : (to_column + 1) * side,
            ] = x[image, :, row * side : (row + 1) * side, column * side : (column + 1) * side]
    return result


def restated(
    model: nn.Module, batches: list[Tensor], term: plain.Term
) -> tuple[list[Tensor], list[int]]:
    parameters = plain.affine(plain.in_place(model), stages=1)
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True)
    outputs, kept = [], []
    for number, x in enumerate(batches):
        logits = model(x)
        outputs.append(logits.detach())
        with torch.no_grad():
            other = model(shuffled(x, number)).softmax(1)
        p, h = logits.softmax(1).detach(), plain.entropy(logits).detach()
        rows, drops = [], []
        for row in range(len(x)):
            predicted = int(p[row].argmax())
            drop = p[row, predicted] - other[row, predicted]
            if h[row] < 0.5 * plain.MOST and drop > 0.1:
                rows.append(row)
                drops.append(drop)
        kept.append(len(rows))
        if rows:
            weights = torch.exp(0.4 * plain.MOST - h[rows]) + torch.exp(torch.stack(drops))
            optimizer.zero_grad()
            (weights * term(logits)[rows]).mean().backward()
            optimizer.step()
    return outputs, kept


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("loss", ["cross-entropy", "poly:epsilon=2"])
def test_it_is_the_plain_loop(norm, loss):
    batches, model = plain.stream(), plain.network(norm)
    wanted, kept = restated(model, batches, plain.TERMS[loss])
    assert 0 < sum(kept) < 16 * len(batches)
    adapted = fenchel.adapt(
        plain.network(norm),
        trained_with=loss,
        method="deyo:drop=0.1",
        learning_rate=0.02,
        predict="before",
    )
    plain.agree(adapted, [adapted(x) for x in batches], model, wanted)


def test_patches_change_places_and_nothing_else():
    images = torch.arange(2 * 3 * 8 * 12.0).reshape(2, 3, 8, 12)
    generator = torch.Generator().manual_seed(3)
    found = shuffled_patches(images, 4, generator)
    assert not torch.equal(found, images)
    assert torch.equal(found.flatten(1).sort(1).values, images.flatten(1).sort(1).values)
    assert shuffled_patches(torch.rand(2, 3, 10, 9), 4, generator).shape == (2, 3, 10, 9)
    assert torch.equal(
        shuffled_patches(torch.ones(2, 1, 10, 9), 4, generator), torch.ones(2, 1, 10, 9)
    )
    for shape in ((2, 3, 8, 3), (2, 30)):
        with pytest.raises(ValueError, match="4 x 4 patches needs images"):
            shuffled_patches(torch.rand(shape), 4, generator)


@pytest.mark.parametrize("norm", ["batch", "layer", "group"])
def test_one_sample_and_constant_batches_do_no_harm(norm):
    adapted = fenchel.adapt(
        plain.network(norm), trained_with="cross-entropy", method="deyo:margin=1,drop=-1"
    )
    constant = torch.full((4, 3, 8, 8), 0.5, dtype=torch.float64)
    small = pytest.warns(fenchel.AdaptationWarning, match="a batch of 1")
    with small if norm == "batch" else contextlib.nullcontext():
        for x in (plain.stream(1)[0][:1], constant):
            assert torch.isfinite(adapted(x)).all()
    assert adapted.health().skipped_non_finite == 0


def test_a_constant_image_has_no_shape_to_lose():
    adapted = fenchel.adapt(plain.network("layer"), trained_with="cross-entropy", method="deyo")
    adapted(torch.full((4, 3, 8, 8), 0.5, dtype=torch.float64))
    assert adapted.health().skipped_none_kept == 1
