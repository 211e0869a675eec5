"""Samples that are not finite spoil nothing: the rest of their batch is what it would be without them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fenchel
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS

FURTHER_METHODS = (*FIELD_METHODS, "protected")

BROKEN = [3, 11]
OTHERS = [row for row in range(20) if row not in BROKEN]


def spoiled(batch, value, rows=BROKEN):
    batch = batch.clone()
    batch[rows, 1, 2, 2] = value
    return batch


VALUES = {"batch": float("nan"), "source": float("inf"), 0.3: -float("inf")}


@pytest.mark.parametrize(
    ("method", "statistics", "value"),
    [
        *((method, *pair) for method in STANDARD_METHODS for pair in VALUES.items()),
        *((method, None, float("nan")) for method in FURTHER_METHODS),
    ],
)
def test_the_other_rows_are_exactly_what_they_would_be_without_them(
    make_network, make_stream, adapt, method, statistics, value
):
    batches = make_stream(3)
    model = make_network().eval()
    hit, spared = (adapt(model, method, statistics=statistics, optimizer="adam") for _ in range(2))
    for number, batch in enumerate(batches):
        broken = spoiled(batch, value) if number == 1 else batch
        output = hit(broken)
        if number == 1:
            assert torch.equal(output[OTHERS], spared(batch[OTHERS]))
            with torch.no_grad():
                theirs = model(broken)[BROKEN]
            torch.testing.assert_close(output[BROKEN], theirs, rtol=0, atol=0, equal_nan=True)
        else:
            assert torch.equal(output, spared(batch))
    mine, theirs = hit.state_dict(), spared.state_dict()
    assert {name for name in mine if not torch.equal(mine[name], theirs[name])} == {
        "samples",
        "left_out",
    }
    health = hit.health()
    assert (health.samples, health.left_out, health.skips) == (60, 2, 0)


def test_a_batch_without_a_finite_sample_is_predicted_by_the_source_and_counted(
    make_network, make_stream, adapt
):
    batches = make_stream(3)
    model = make_network()
    hit, spared = (adapt(model, statistics=0.3, steps=2) for _ in range(2))
    hit(batches[0]), spared(batches[0])
    assert hit(torch.full_like(batches[1], float("nan"))).isnan().all()
    assert torch.equal(hit(batches[2]), spared(batches[2]))
    health = hit.health()
    assert (health.batches, health.samples, health.left_out) == (3, 60, 20)
    assert (health.updates, health.skipped_non_finite) == (4, 2)


def test_a_model_that_hides_the_values_predicts_such_samples_with_the_source(
    make_network, make_stream, adapt
):
    class Forgiving(nn.Module):
        def forward(self, x):
            return x.nan_to_num()

    model = nn.Sequential(Forgiving(), *make_network()).eval()
    adapted, spared = adapt(model), adapt(model)
    batch = spoiled(make_stream(1)[0], float("nan"))
    output = adapted(batch)
    with torch.no_grad():
        torch.testing.assert_close(output[BROKEN], model(batch[BROKEN]))
    assert torch.equal(output[OTHERS], spared(batch[OTHERS]))


@pytest.mark.parametrize("mode", ["freeze", "disable"])
def test_they_spoil_no_batch_of_a_frozen_or_disabled_adapter(
    make_network, make_stream, adapt, mode
):
    batches = make_stream(2)
    adapted = adapt(make_network())
    adapted(batches[0])
    getattr(adapted, mode)()
    before = adapted.state
    output = adapted(spoiled(batches[1], float("nan")))
    assert torch.equal(output[OTHERS], adapted(batches[1][OTHERS]))
    assert output[BROKEN].isnan().all()
    assert adapted.state is before


def test_every_argument_with_one_row_per_sample_is_cut_alike(make_stream, adapt):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.norm, self.head = nn.BatchNorm1d(192), nn.Linear(192, 4)

        def forward(self, x, *, shift, scale):
            return {"logits": self.head(self.norm(x.flatten(1) + shift) * scale), "shift": shift}

    batch, shift = make_stream(1)[0], torch.linspace(0, 1, 20)[:, None]
    model, scale = Shifted(), torch.tensor(2.0)
    whole = adapt(model)(spoiled(batch, float("nan")), shift=shift, scale=scale)
    part = adapt(model)(batch[OTHERS], shift=shift[OTHERS], scale=scale)
    assert torch.equal(whole["logits"][OTHERS], part["logits"])
    assert torch.equal(whole["shift"], shift)


def test_an_output_out_of_reach_is_refused_and_nothing_is_lost(make_network, make_stream):
    class Hidden:
        def __init__(self, scores):
            self.scores = scores

    class Wrapping(nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body

        def forward(self, x):
            return Hidden(self.body(x))

    adapted = fenchel.adapt(Wrapping(make_network()), method="entropy", logits="scores")
    batch = make_stream(1)[0]
    assert adapted(batch).scores.shape == (20, 4)
    before = adapted.state
    with pytest.raises(TypeError, match=r"returned Hidden.*return tensors"):
        adapted(spoiled(batch, float("nan")))
    assert adapted.state is before


def test_numbers_without_a_fraction_are_never_looked_through():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.head = nn.Embedding(9, 6), nn.LayerNorm(6), nn.Linear(6, 3)

        def forward(self, tokens):
            return self.head(self.norm(self.embed(tokens).mean(1)))

    adapted = fenchel.adapt(Words(), method="entropy")
    assert adapted(torch.randint(0, 9, (20, 5))).shape == (20, 3)
    assert adapted.health().left_out == 0


def test_finite_samples_whose_sum_overflows_are_kept(make_network, adapt):
    adapted = adapt(make_network())
    batch = torch.full((20, 3, 8, 8), 3e38)
    adapted(batch)
    assert adapted.health().left_out == 0
