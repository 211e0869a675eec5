"""The public call: what it accepts, what it promises, and what it lists."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fenchel.data.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    TEST_CORRUPTIONS,
    VALIDATION_CORRUPTIONS,
    Draws,
    base,
    corrupt,
)
from fenchel.names import register

PUBLIC_TEST = [
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
]
PUBLIC_VALIDATION = ["speckle_noise", "gaussian_blur", "spatter", "saturate"]
EVERY = [*PUBLIC_TEST, *PUBLIC_VALIDATION]
# Without any randomness, another seed changes nothing.
PLAIN = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
}


def test_the_public_names_are_listed_in_the_order_of_the_benchmark():
    assert list(TEST_CORRUPTIONS) == PUBLIC_TEST
    assert list(VALIDATION_CORRUPTIONS) == PUBLIC_VALIDATION
    assert set(CORRUPTIONS) >= set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_a_corruption_describes_itself(name):
    entry = CORRUPTIONS[name]
    assert entry.name == name
    assert entry.summary.endswith(".")
    assert entry.family in ("noise", "blur", "weather", "digital")
    assert all(len(values) == len(SEVERITIES) for values in entry.constants.values())


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", EVERY)
def test_an_image_does_not_depend_on_its_batch(name, constants, small):
    whole = corrupt(small, name, 4, constants=constants, seed=3, start=100)
    for split in (1, 3, 5):
        parts = [
            corrupt(small[i : i + split], name, 4, constants=constants, seed=3, start=100 + i)
            for i in range(0, len(small), split)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", EVERY)
def test_chunks_leave_no_trace(name, small, monkeypatch):
    whole = corrupt(small, name, 2)
    monkeypatch.setattr("fenchel.data.corruptions.CHUNK_VALUES", 3 * small[0].size)
    np.testing.assert_array_equal(corrupt(small, name, 2), whole)


@pytest.mark.parametrize("name", EVERY)
def test_seed_and_index_decide_the_noise(name, small):
    same = np.repeat(small[:1], 2, axis=0)
    first = corrupt(same, name, 5)
    other_seed = corrupt(same, name, 5, seed=1)
    if name in PLAIN:
        np.testing.assert_array_equal(first[0], first[1])
        np.testing.assert_array_equal(first, other_seed)
    else:
        assert (first[0] != first[1]).any()
        assert (first != other_seed).any()


@pytest.mark.parametrize("name", EVERY)
def test_every_size_is_accepted(name):
    for shape in [(2, 4, 4, 3), (2, 9, 5, 3), (1, 28, 28, 1), (1, 40, 70, 3)]:
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        before = images.copy()
        for constants, severity in product(("cifar", "imagenet"), SEVERITIES):
            result = corrupt(images, name, severity, constants=constants)
            assert result.shape == shape
            assert result.dtype == np.uint8
        np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("level", [0, 255])
def test_black_and_white_images_are_accepted(name, level):
    images = np.full((2, 16, 16, 3), level, dtype=np.uint8)
    assert corrupt(images, name, 3).shape == images.shape


@pytest.mark.parametrize("name", sorted(set(EVERY) - {"saturate"}))
def test_grey_images_are_corrupted_too(name, small):
    grey = small[..., :1]
    assert (corrupt(grey, name, 5) != grey).any()


def test_grey_images_have_no_saturation_to_change(small):
    grey = small[..., :1]
    np.testing.assert_array_equal(corrupt(grey, "saturate", 5), grey)


def test_no_images_give_no_images():
    assert corrupt(np.empty((0, 32, 32, 3), np.uint8), "fog", 1).shape == (0, 32, 32, 3)


def test_read_only_and_mapped_images_are_accepted(small, tmp_path):
    np.save(tmp_path / "images.npy", small)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    result = corrupt(mapped, "glass_blur", 1)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, corrupt(small, "glass_blur", 1))


def test_views_with_strides_are_accepted(small):
    np.testing.assert_array_equal(
        corrupt(small[::-1, :, ::-1], "frost", 1),
        corrupt(small[::-1, :, ::-1].copy(), "frost", 1),
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "fogg"}, ValueError, "Did you mean 'fog'"),
        ({"constants": "cifr"}, ValueError, "Did you mean 'cifar'"),
        ({"severity": 0}, ValueError, "from 1 to 5, not 0"),
        ({"severity": 6}, ValueError, "from 1 to 5, not 6"),
        ({"severity": 2.5}, TypeError, "whole number, not 2.5"),
        ({"severity": True}, TypeError, "whole number, not True"),
        ({"start": -1}, ValueError, "at least 0, not -1"),
        ({"seed": "x"}, TypeError, "seed must be a whole number"),
        ({"images": np.zeros((2, 32, 32, 3))}, TypeError, r"not numpy\.ndarray of float64"),
        ({"images": [[1]]}, TypeError, r"not builtins\.list\."),
        ({"images": np.zeros((32, 32, 3), np.uint8)}, ValueError, r"images\[None\]"),
        ({"images": np.zeros((2, 32, 32, 4), np.uint8)}, ValueError, r"\(2, 32, 32, 4\)"),
        ({"images": np.zeros((2, 3, 32, 3), np.uint8)}, ValueError, "3 x 32"),
        ({"name": "frost", "textures": "nowhere"}, ValueError, "'nowhere' is no folder"),
    ],
)
def test_mistakes_are_named(change, error, message, small):
    arguments = {"images": small, "name": "fog", "severity": 3, **change}
    images, name, severity = (arguments.pop(key) for key in ("images", "name", "severity"))
    with pytest.raises(error, match=message):
        corrupt(images, name, severity, **arguments)


def test_whole_numbers_of_numpy_are_whole_numbers(small):
    np.testing.assert_array_equal(
        corrupt(small, "fog", np.int64(2), start=np.int32(4)), corrupt(small, "fog", 2, start=4)
    )


def test_a_decorated_function_is_a_corruption(small, monkeypatch):
    monkeypatch.setattr(base.CORRUPTIONS, "_things", dict(base.CORRUPTIONS._things))

    @register(kind="corruption", cifar=(1, 2, 3, 4, 5), imagenet=(1, 2, 3, 4, 5))
    def darken(images, factor, draws):
        """Divide by `factor`."""
        return images / 255 / factor

    assert CORRUPTIONS["darken"].summary == "Divide by `factor`."
    assert CORRUPTIONS["darken"].function is darken
    assert "darken" not in TEST_CORRUPTIONS + VALIDATION_CORRUPTIONS
    expected = (small / 255 / 4 * 255).astype(np.uint8)
    np.testing.assert_array_equal(corrupt(small, "darken", 4), expected)


def test_a_corruption_needs_five_strengths():
    with pytest.raises(ValueError, match=r"5 severities; 'short' has 2 under 'imagenet'"):

        @register(kind="corruption", cifar=(1, 2, 3, 4, 5), imagenet=(1, 2))
        def short(images, strength, draws):
            return images


def test_draws_of_an_image_do_not_depend_on_its_neighbours():
    together, alone = Draws(0, "x", 1, range(5)), Draws(0, "x", 1, [3])
    for draw in (
        lambda draws: draws.normal(1, 2, (3, 4)),
        lambda draws: draws.uniform(-1, 1, (7,)),
        lambda draws: draws.integers(0, 9, (5,)),
        lambda draws: draws.uniform(0, 1),
    ):
        np.testing.assert_array_equal(draw(together)[3], draw(alone)[0])


def test_draws_have_the_moments_asked_for():
    draws = Draws(0, "x", 1, range(50))
    normal = draws.normal(2, 3, (1000,))
    assert normal.mean() == pytest.approx(2, abs=0.05)
    assert normal.std() == pytest.approx(3, abs=0.05)
    integers = draws.integers(-2, 2, (1000,))
    np.testing.assert_array_equal(np.unique(integers), [-2, -1, 0, 1])
    assert draws.poisson(np.full((50, 1000), 4.0)).var() == pytest.approx(4, abs=0.1)


def test_textures_may_be_a_path_or_its_text(small, tmp_path):
    from PIL import Image

    for number in range(5):
        Image.new("RGB", (300, 200), (40 * number, 0, 255)).save(tmp_path / f"{number}.png")
    result = corrupt(small, "frost", 1, textures=tmp_path)
    np.testing.assert_array_equal(corrupt(small, "frost", 1, textures=str(tmp_path)), result)
    np.testing.assert_array_equal(
        corrupt(small, "fog", 1, textures=Path("unused")).shape, small.shape
    )
