"""Images that show nothing: where they are, what they look like, and that they have no class."""

import numpy as np
import pytest
import torch

from fenchel.data import from_arrays, load
from fenchel.data.bursts import NOTHING, parse_bursts
from fenchel.data.stream import Shift, Stream, shift_to

COUNT, CLASSES = 120, 6


@pytest.fixture(scope="module")
def bright():
    """Images that are neither black nor noise: each is a constant that tells its index."""
    pixels = np.arange(1, COUNT + 1, dtype=np.uint8)[:, None, None, None]
    labels = np.random.default_rng(0).integers(0, CLASSES, COUNT)
    return from_arrays("bright", np.broadcast_to(pixels, (COUNT, 8, 8, 3)).copy(), labels)


def stream_of(dataset, bursts, **options):
    return Stream(shifts=[shift_to(dataset)], setting="bursts", bursts=bursts, **options)


def shows_nothing(batch):
    """By the pixels alone: an image of `bright` has one value, and it is not zero."""
    flat = batch.inputs.flatten(1)
    return (flat.amax(1) != flat.amin(1)) | (flat.amax(1) == 0)


def test_a_share_of_every_batch_is_noise_and_has_no_class(bright):
    stream = stream_of(bright, "noise:share=0.2", batch_size=25)
    batches = list(stream)
    assert [len(batch) for batch in batches] == [25] * 6
    for batch in batches:
        nothing = shows_nothing(batch)
        assert int(nothing.sum()) == 5
        assert ((batch.reveal_labels() == NOTHING) == nothing).all()
        assert ((batch.reveal_indices() == NOTHING) == nothing.numpy()).all()
        assert batch.shift == "bright"
    shown = np.concatenate([batch.reveal_indices() for batch in batches])
    assert sorted(shown[shown != NOTHING]) == list(range(COUNT))
    assert (len(stream), stream.samples) == (6, 150)


def test_noise_lies_at_random_places_and_is_uniform(bright):
    batches = list(stream_of(bright, "noise:share=0.5", batch_size=40))
    places = [tuple(np.flatnonzero(batch.reveal_indices() == NOTHING)) for batch in batches]
    assert len(set(places)) == len(places)
    assert places[0] != tuple(range(20))
    values = torch.cat([batch.inputs[shows_nothing(batch)].flatten() for batch in batches]) * 255
    counts = torch.bincount(values.round().long(), minlength=256).double()
    expected = len(values) / 256
    assert float(((counts - expected) ** 2 / expected).sum()) < 330.5  # the 99.9 % point of 255


def test_the_share_holds_at_any_batch_size(bright):
    for size in (1, 3, 7, 120):
        batches = list(stream_of(bright, "noise:share=0.2", batch_size=size))
        assert int((batches[0].reveal_labels() != NOTHING).sum()) > 0
        nothing = sum(int(shows_nothing(batch).sum()) for batch in batches)
        assert abs(nothing - 30) <= 1, size


def test_images_without_noise_keep_their_order(bright):
    plain = Stream(shifts=[shift_to(bright)], seed=3)
    (expected,) = [batch.reveal_indices().tolist() for batch in plain]
    noisy = stream_of(bright, "noise", batch_size=10, seed=3)
    found = [index for batch in noisy for index in batch.reveal_indices() if index != NOTHING]
    assert found == expected


def test_black_outs_are_whole_batches_between_others_and_run_on_over_shifts(bright):
    shifts = [Shift("fog", 5, bright), Shift("snow", 5, bright)]
    options = {"setting": "bursts", "bursts": "black:every=3,length=2", "batch_size": 30}
    batches = list(Stream(shifts=shifts, **options))
    black = [bool(shows_nothing(batch).all()) for batch in batches]
    assert black == [False] * 3 + [True] * 2 + [False] * 3 + [True] * 2 + [False] * 2
    assert all(bool(shows_nothing(b).any()) == dark for b, dark in zip(batches, black, strict=True))
    assert float(batches[3].inputs.abs().max()) == 0
    assert [len(batch) for batch in batches] == [30] * 12
    assert [batch.reset for batch in batches] == [True] + [False] * 11
    names = [batch.shift for batch, dark in zip(batches, black, strict=True) if not dark]
    assert names == ["fog"] * 4 + ["snow"] * 4


def test_the_seed_decides_and_the_record_tells(bright):
    first, again, other = (
        stream_of(bright, "noise:share=0.3", batch_size=20, seed=seed) for seed in (1, 1, 2)
    )
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))
    assert first.order_digest == again.order_digest != other.order_digest
    assert first.order_digest != stream_of(bright, "noise", batch_size=20, seed=1).order_digest
    assert first.record()["bursts"] == "noise:share=0.3"
    assert first.record()["samples"] == first.samples == sum(len(batch) for batch in first)
    assert "bursts" not in Stream(shifts=first.shifts).record()


def test_options_are_written_out():
    assert str(parse_bursts("noise")) == "noise:share=0.2"
    assert str(parse_bursts("black")) == "black:every=5,length=2"


@pytest.mark.parametrize(
    ("bursts", "words"),
    [
        ("nois", "Did you mean 'noise'"),
        ("noise:share=1", "between 0 and 1"),
        ("noise:shares=0.1", "share"),
        ("black:every=0", "at least 1"),
        ("black:length=1.5", "at least 1"),
    ],
)
def test_mistakes_are_told(bright, bursts, words):
    with pytest.raises(ValueError, match=words):
        stream_of(bright, bursts)


def test_vectors_have_no_bursts():
    with pytest.raises(ValueError, match="bursts are of images"):
        stream_of(load("gaussians", samples=6), "noise")
