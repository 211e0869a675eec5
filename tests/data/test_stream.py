"""Streams: settings, orders, laziness, and labels kept apart."""

import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from fenchel.data import DATASETS, corrupted, from_arrays, load
from fenchel.data.batch import Batch
from fenchel.data.corruptions import TEST_CORRUPTIONS
from fenchel.data.orders import ORDERS, shuffle
from fenchel.data.stream import Shift, Stream, corruption_shifts, shift_to

COUNT, CLASSES = 120, 6


@pytest.fixture(scope="module")
def clean():
    """Each image is a constant that tells its index."""
    pixels = np.broadcast_to(
        np.arange(COUNT, dtype=np.uint8)[:, None, None, None], (COUNT, 8, 8, 3)
    )
    labels = np.random.default_rng(0).integers(0, CLASSES, COUNT)
    return from_arrays("tiny", np.ascontiguousarray(pixels), labels)


def seen(stream):
    """The indices of the images in the order of the stream (clean data only)."""
    inputs = torch.cat([batch.inputs for batch in stream])
    return (inputs[:, 0, 0, 0] * 255).round().to(torch.int64).tolist()


def named(dataset, *names):
    """The same clean images under several names, so that their order can be followed."""
    return [Shift(name, None, dataset) for name in names]


# what a batch is


def test_the_adapter_gets_float_images_between_zero_and_one(clean):
    batch = next(iter(Stream(shifts=[shift_to(clean)], batch_size=7)))
    assert batch.inputs.shape == (7, 3, 8, 8)
    assert batch.inputs.dtype == torch.float32
    assert batch.inputs.is_contiguous()
    assert 0 <= batch.inputs.min() <= batch.inputs.max() <= 1


def test_labels_are_revealed_apart_and_fit_the_inputs(clean):
    public = {field.name for field in fields(Batch) if not field.name.startswith("_")}
    assert not any("label" in name for name in public)
    for batch in Stream(shifts=[shift_to(clean)], batch_size=50):
        indices = (batch.inputs[:, 0, 0, 0] * 255).round().long().numpy()
        assert batch.reveal_labels().tolist() == clean.labels[indices].tolist()
        assert batch.reveal_labels().dtype == torch.int64
        assert "label" not in repr(batch)


def test_a_revealed_label_cannot_change_the_data(clean):
    batch = next(iter(Stream(shifts=[shift_to(clean)])))
    before = batch.reveal_labels().tolist()
    batch.reveal_labels().zero_()
    assert batch.reveal_labels().tolist() == before


def test_vectors_pass_unscaled():
    dataset = load("gaussians", samples=6)
    batch = next(iter(Stream(shifts=[shift_to(dataset)], order="stored")))
    np.testing.assert_array_equal(batch.inputs.numpy(), dataset.read(np.arange(6)))


# settings


def test_reset_announces_every_shift_and_continual_only_the_first(clean):
    shifts = named(clean, "fog", "snow", "frost")
    for setting, expected in (("reset", [True] * 3), ("continual", [True, False, False])):
        stream = Stream(shifts=shifts, setting=setting, batch_size=COUNT)
        assert [batch.reset for batch in stream] == expected
        assert [batch.shift for batch in stream] == ["fog", "snow", "frost"]
    halves = Stream(shifts=shifts, batch_size=COUNT // 2)
    assert [batch.reset for batch in halves] == [True, False] * 3


def test_gradual_rises_and_falls(clean):
    shifts = corruption_shifts(clean, corruptions=("contrast", "fog"), severities=(3, 1, 2, 5, 4))
    stream = Stream(shifts=shifts, setting="gradual", batch_size=COUNT)
    ramp = [1, 2, 3, 4, 5, 4, 3, 2, 1]
    batches = list(stream)
    assert [batch.severity for batch in batches] == ramp * 2
    assert [batch.shift for batch in batches] == ["contrast"] * 9 + ["fog"] * 9
    assert [batch.reset for batch in batches] == [True] + [False] * 17


def test_recurring_goes_round_and_never_resets(clean):
    stream = Stream(
        shifts=named(clean, "fog", "snow"), setting="recurring", rounds=2, batch_size=COUNT
    )
    batches = list(stream)
    assert [batch.shift for batch in batches] == ["fog", "snow"] * 2
    assert [batch.reset for batch in batches] == [True] + [False] * 3
    assert stream.record()["rounds"] == 2
    with pytest.raises(ValueError, match="at least one round"):
        Stream(shifts=stream.shifts, setting="recurring", rounds=0)


def test_a_stream_that_begins_clean_ends_clean_and_never_resets(clean):
    setting = "clean-then-shift-then-clean"
    shifts = named(clean, "tiny", "fog", "snow")
    batches = list(Stream(shifts=shifts, setting=setting, batch_size=COUNT))
    assert [batch.shift for batch in batches] == ["tiny", "fog", "snow", "tiny"]
    assert [batch.reset for batch in batches] == [True] + [False] * 3
    with pytest.raises(ValueError, match="the clean data and at least one shift"):
        Stream(shifts=shifts[:1], setting=setting)


def test_gradual_needs_several_severities(clean):
    with pytest.raises(ValueError, match="several severities"):
        Stream(shifts=corruption_shifts(clean, corruptions=("fog",)), setting="gradual")
    with pytest.raises(ValueError, match="several severities"):
        Stream(shifts=[shift_to(clean)], setting="gradual")


def test_mixed_shuffles_all_shifts_together_and_once_each(clean):
    shifts = named(clean, "fog", "snow")
    stream = Stream(shifts=shifts, setting="mixed", batch_size=40)
    batches = list(stream)
    assert all(batch.shift == "mixed" and batch.severity is None for batch in batches)
    assert all(0 < batch.reveal_shifts().sum() < len(batch) for batch in batches)
    members = np.concatenate([batch.reveal_shifts() for batch in batches])
    pairs = set(zip(members.tolist(), seen(stream), strict=True))
    assert pairs == {(k, index) for k in (0, 1) for index in range(COUNT)}


def test_mixed_batches_hold_the_images_of_their_shift(clean):
    dark = corrupted(clean, "contrast", 5)
    stream = Stream(
        shifts=[shift_to(clean), Shift("contrast", 5, dark)], setting="mixed", batch_size=9
    )
    batch = next(iter(stream))
    flat = dark.images(np.arange(COUNT)).transpose(0, 3, 1, 2) / 255
    for row, member in enumerate(batch.reveal_shifts()):
        found = batch.inputs[row].numpy()
        candidates = (clean.images(np.arange(COUNT)).transpose(0, 3, 1, 2) / 255, flat)[member]
        assert (np.abs(candidates - found).max(axis=(1, 2, 3)) < 1e-6).any()


# orders


def test_every_order_presents_each_image_once(clean):
    for order in ORDERS:
        stream = Stream(shifts=[shift_to(clean)], order=order, batch_size=32)
        assert sorted(seen(stream)) == list(range(COUNT)), order


def test_the_order_is_a_function_of_the_seed_alone(clean):
    first = seen(Stream(shifts=[shift_to(clean)], seed=1))
    torch.manual_seed(5)
    np.random.seed(5)
    assert seen(Stream(shifts=[shift_to(clean)], seed=1, batch_size=7)) == first
    assert seen(Stream(shifts=named(clean, "a", "b"), seed=1)) == first * 2
    assert seen(Stream(shifts=[shift_to(clean)], seed=2)) != first
    assert first != list(range(COUNT))


def test_the_shuffle_is_the_same_in_every_version():
    """Recorded once; raw generator bits are promised to stay."""
    assert shuffle(0, 8).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]


def test_the_shuffle_favours_no_place():
    """Chi-square over where image 0 lands in 2,000 shuffles of 10: 9 degrees of freedom."""
    places = [int(np.flatnonzero(shuffle(seed, 10) == 0)[0]) for seed in range(2000)]
    counts = np.bincount(places, minlength=10)
    assert ((counts - 200) ** 2 / 200).sum() < 27.9  # the 99.9 % point


def test_sorted_presents_one_class_after_the_other(clean):
    stream = Stream(shifts=[shift_to(clean)], order="sorted", batch_size=COUNT)
    labels = next(iter(stream)).reveal_labels().tolist()
    assert labels == sorted(labels)
    other = Stream(shifts=[shift_to(clean)], order="sorted", batch_size=COUNT, seed=1)
    assert seen(other) != seen(stream)


def runs(labels):
    return 1 + int((np.diff(labels) != 0).sum())


def test_dirichlet_correlates_more_the_smaller_its_concentration():
    labels = np.arange(3000) % 10
    found = [runs(labels[ORDERS["dirichlet"](labels, 0, c)]) for c in (0.001, 0.1, 1.0, 1000.0)]
    assert found == sorted(found)
    assert found[0] < 1500
    assert found[-1] > 2500


def test_the_concentration_must_be_positive(clean):
    stream = Stream(shifts=[shift_to(clean)], order="dirichlet", concentration=0.0)
    with pytest.raises(ValueError, match="concentration"):
        next(iter(stream))


# sizes


def test_lengths_add_up(clean):
    stream = Stream(shifts=named(clean, "a", "b"), batch_size=50)
    assert len(stream) == len(list(stream)) == 6
    assert [len(batch) for batch in stream] == [50, 50, 20] * 2
    assert [batch.number for batch in stream] == list(range(6))
    assert stream.samples == 240


def test_a_limit_takes_the_same_random_images_of_each_shift(clean):
    stream = Stream(shifts=named(clean, "a", "b"), limit=30, batch_size=30)
    first, second = (set(seen([batch])) for batch in stream)
    assert first == second
    assert len(first) == 30
    assert first != set(range(30))


class Counting:
    """A reader of large images that notes how many were alive at once."""

    def __call__(self, indices):
        return np.zeros((len(indices), 256, 256, 3), np.uint8)


def test_a_stream_holds_one_batch_however_long_it_is():
    labels = np.arange(2000) % 5
    dataset = replace(
        from_arrays("large", np.zeros((2000, 1, 1, 3), np.uint8), labels),
        reader=Counting(),
        shape=(256, 256, 3),
    )
    stream = Stream(shifts=named(dataset, "a", "b"), batch_size=4, limit=200)
    batch_bytes = 4 * 256 * 256 * 3 * 5
    tracemalloc.start()
    for _ in stream:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * batch_bytes


# shifts


def test_corruptions_of_a_clean_data_set_are_made_on_the_fly(clean):
    shifts = corruption_shifts(clean, severities=(1, 5))
    assert [(shift.name, shift.severity) for shift in shifts] == [
        (name, severity) for name in TEST_CORRUPTIONS for severity in (1, 5)
    ]


def test_corrupted_data_sets_are_loaded_by_name(tmp_path):
    DATASETS["cifar10-c"].write_example(tmp_path)
    (shift,) = corruption_shifts("cifar10-c", corruptions=["fog"], severities=[3], root=tmp_path)
    assert shift.dataset.origin == "CIFAR-10-C files"


def test_a_seed_written_in_the_name_counts(tmp_path):
    DATASETS["cifar10"].write_example(tmp_path)
    options = {"corruptions": ["fog"], "root": tmp_path}
    (written,) = corruption_shifts("cifar10-c:seed=3,source=generated", **options)
    (given,) = corruption_shifts("cifar10-c", seed=3, **options)
    assert "seed 3" in written.dataset.origin
    assert written.dataset.digest == given.dataset.digest


def test_clean_names_are_loaded_and_corrupted():
    (shift,) = corruption_shifts("sklearn-digits", corruptions=["fog"], severities=[3])
    assert "generated from sklearn-digits" in shift.dataset.origin


def test_shifts_must_agree(clean):
    other = from_arrays("other", np.zeros((4, 9, 9, 3), np.uint8), np.arange(4))
    with pytest.raises(ValueError, match="must agree in input shape"):
        Stream(shifts=[shift_to(clean), shift_to(other)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"setting": "continuous"}, "Did you mean 'continual'"),
        ({"order": "sort"}, "Did you mean 'sorted'"),
        ({"batch_size": 0}, "at least 1"),
        ({"limit": 0}, "at least 1"),
        ({"shifts": []}, "at least one shift"),
    ],
)
def test_mistakes_are_told(clean, options, words):
    with pytest.raises(ValueError, match=words):
        Stream(**{"shifts": [shift_to(clean)], **options})


# records


def test_the_record_holds_the_protocol_and_the_order(clean):
    shifts = corruption_shifts(clean, corruptions=["fog"], severities=[5])
    stream = Stream(shifts=shifts, seed=3, order="dirichlet")
    record = stream.record()
    assert record["setting"] == "reset"
    assert record["order"] == "dirichlet"
    assert record["concentration"] == 0.1
    assert record["seed"] == 3
    assert record["samples"] == COUNT
    assert record["shifts"][0]["name"] == "fog"
    assert record["shifts"][0]["digest"] == shifts[0].dataset.digest
    assert record["order_digest"] == Stream(shifts=shifts, seed=3, order="dirichlet").order_digest
    assert record["order_digest"] != Stream(shifts=shifts, seed=4, order="dirichlet").order_digest


def test_negative_seeds_are_refused(clean):
    with pytest.raises(ValueError, match="seed"):
        next(iter(Stream(shifts=[shift_to(clean)], seed=-1)))
