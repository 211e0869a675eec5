"""Small real data: the 8x8 digits inside scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fenchel.data import from_arrays
from fenchel.losses import CrossEntropy
from fenchel.train import Recipe, TrainingRun


@pytest.fixture(scope="session")
def digits():
    """A training set of 600 digits and a test set of 300."""
    bunch = load_digits()
    pixels = (bunch.images * 15.9375).astype(np.uint8)
    return tuple(
        from_arrays("digits", pixels[rows], bunch.target[rows], split=split)
        for split, rows in (("train", slice(0, 600)), ("test", slice(600, 900)))
    )


@pytest.fixture
def make_run(digits, tmp_path):
    """A run of a few steps on the digits; keywords change it, `recipe_...` change its recipe."""

    def make(name="run", **changes):
        recipe = {"epochs": 2, "batch_size": 50, "augmentation": "pad-crop:padding=1,flip=False"}
        for key in [key for key in changes if key.startswith("recipe_")]:
            recipe[key.removeprefix("recipe_")] = changes.pop(key)
        fields = {
            "data": digits[0],
            "test": digits[1],
            "model": "digit_network",
            "model_arguments": {"width": 4},
            "loss": CrossEntropy(),
            "recipe": Recipe(**recipe),
            "out": tmp_path / name,
            "threads": 1,
        }
        return TrainingRun(**{**fields, **changes})

    return make
