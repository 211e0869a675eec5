"""What every registered data set promises, checked on the tiny example each can write."""

import pickle

import numpy as np
import pytest

from fenchel.data import DATASETS, load
from fenchel.wnids import wnids

ON_DISK = [name for name, entry in DATASETS.items() if entry.recipe or "your own" in entry.provider]
SPLITS = [(name, split) for name, entry in DATASETS.items() for split in entry.splits]


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Writes the example of a data set once; gives its root and options."""
    written = {}

    def example(name):
        if name not in written:
            root = tmp_path_factory.mktemp(name)
            written[name] = (root, dict(DATASETS[name].write_example(root)))
        return written[name]

    return example


@pytest.fixture(params=SPLITS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def dataset(request, examples):
    name, split = request.param
    root, options = examples(name)
    return load(name, split, root, **options)


def test_labels_are_whole_numbers_below_the_number_of_classes(dataset):
    assert dataset.labels.dtype == np.int64
    assert len(dataset) == len(dataset.labels) > 0
    assert 0 <= dataset.labels.min() <= dataset.labels.max() < len(dataset.classes)
    assert all(isinstance(name, str) and name for name in dataset.classes)


def test_inputs_have_the_promised_shape_and_type(dataset):
    batch = dataset.read([0, len(dataset) - 1])
    assert batch.shape == (2, *dataset.shape)
    assert batch.dtype == (np.uint8 if dataset.is_images else np.float32)


def test_an_input_is_the_same_in_any_batch(dataset):
    everything = dataset.read(np.arange(len(dataset)))
    backwards = dataset.read(np.arange(len(dataset))[::-1])
    np.testing.assert_array_equal(everything, backwards[::-1])
    np.testing.assert_array_equal(everything[1], dataset.read([1])[0])
    assert (everything != everything[:1]).any()


def test_what_was_read_belongs_to_the_caller(dataset):
    first = dataset.read([0])
    before = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(dataset.read([0]), before)


def test_nothing_asked_is_nothing_read(dataset):
    assert dataset.read([]).shape == (0, *dataset.shape)


def test_it_travels_to_another_process(dataset):
    copy = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(copy.read([0]), dataset.read([0]))
    assert copy.digest == dataset.digest


def test_the_mask_covers_the_labels(dataset):
    if dataset.class_mask is not None:
        assert dataset.class_mask.shape == (len(dataset.classes),)
        assert dataset.class_mask[dataset.labels].all()


def test_it_says_where_it_comes_from_and_how_it_is_scored(dataset):
    assert dataset.origin
    assert dataset.metric in ("accuracy", "mean-class-accuracy")


@pytest.mark.parametrize("name", DATASETS)
def test_the_digest_is_stable_and_tells_splits_apart(name, examples):
    root, options = examples(name)
    splits = DATASETS[name].splits
    digests = [load(name, split, root, **options).digest for split in splits]
    assert digests == [load(name, split, root, **options).digest for split in splits]
    if not name.startswith("imagenet"):  # the example has the same pictures in both splits
        assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("name", ON_DISK)
def test_presence_is_told_from_the_files(name, examples, tmp_path):
    root, _ = examples(name)
    assert DATASETS[name].is_present(root)
    assert not DATASETS[name].is_present(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ON_DISK)
def test_missing_files_are_told_with_what_to_do(name, examples, tmp_path):
    _, options = examples(name)
    options = {**options, **({"source": "files"} if "source" in DATASETS[name].options else {})}
    with pytest.raises((FileNotFoundError, ValueError)) as told:
        load(name, None, tmp_path / "nowhere", **options)
    assert "nowhere" in str(told.value)


@pytest.mark.parametrize("name", DATASETS)
def test_unknown_splits_and_options_are_refused(name, examples):
    root, options = examples(name)
    with pytest.raises(ValueError, match="unknown split"):
        load(name, "tset", root, **options)
    with pytest.raises(ValueError, match="unknown option"):
        load(name, None, root, colour="blue", **options)


@pytest.mark.parametrize("name", DATASETS)
def test_listings_have_something_to_say(name):
    entry = DATASETS[name]
    assert entry.what
    assert entry.source
    assert entry.recipe or entry.by_hand


def test_there_are_a_thousand_sorted_wnids():
    assert len(wnids()) == len(set(wnids())) == 1000
    assert list(wnids()) == sorted(wnids())
    assert wnids()[0] == "n01440764"
    assert wnids()[-1] == "n15075141"


@pytest.mark.parametrize("wrong", [[-1], [10**9], [[0]], [0.5]])
def test_indices_outside_are_refused(wrong):
    """`Dataset.read` checks them for every reader alike."""
    with pytest.raises((IndexError, TypeError), match="indices must"):
        load("gaussians", samples=4).read(wrong)
