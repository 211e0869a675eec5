"""The paired bootstrap against a naive one, against its coverage, and at its edges."""

from __future__ import annotations

import numpy as np
import pytest

from fenchel.report.significance import paired_bootstrap


def masks(seed: int, images: int, rates: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.random(images) < rates[0], random.random(images) < rates[1]


def test_the_counts_give_the_same_interval_as_drawing_images() -> None:
    wrong, reference = masks(0, 400, (0.2, 0.3))
    found = paired_bootstrap(wrong, reference, resamples=20_000)
    random = np.random.default_rng(1)
    drawn = random.integers(0, 400, (20_000, 400))
    naive = 100 * (wrong[drawn].mean(1) - reference[drawn].mean(1))
    assert found.estimate == pytest.approx(100 * (wrong.mean() - reference.mean()))
    assert found.low == pytest.approx(np.quantile(naive, 0.025), abs=0.3)
    assert found.high == pytest.approx(np.quantile(naive, 0.975), abs=0.3)


def test_conditions_of_one_image_are_drawn_together() -> None:
    """Repeating a condition adds no information: the interval must not shrink."""
    wrong, reference = masks(2, 500, (0.25, 0.3))
    once = paired_bootstrap(wrong, reference)
    often = paired_bootstrap(np.tile(wrong, (20, 1)), np.tile(reference, (20, 1)))
    assert often.estimate == pytest.approx(once.estimate)
    assert often.high - often.low == pytest.approx(once.high - once.low, rel=0.05)
    assert often.images == 500


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        found = paired_bootstrap(*masks(seed, 300, (0.3, 0.3)), resamples=500)
        covered += found.low <= 0 <= found.high
    assert 180 <= covered <= 199


def test_pairing_finds_what_independent_samples_would_miss() -> None:
    random = np.random.default_rng(3)
    reference = random.random(1000) < 0.3
    wrong = reference & (np.arange(1000) % 25 != 0)
    found = paired_bootstrap(wrong, reference)
    assert found.high < 0
    assert found.p_value < 0.01


def test_equal_methods_differ_by_nothing() -> None:
    mask = np.arange(100) < 30
    found = paired_bootstrap(mask, mask)
    assert (found.estimate, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_the_same_seed_gives_the_same_numbers() -> None:
    pair = masks(4, 200, (0.2, 0.25))
    assert paired_bootstrap(*pair) == paired_bootstrap(*pair)
    assert paired_bootstrap(*pair, seed=1) != paired_bootstrap(*pair)


@pytest.mark.parametrize(
    ("wrong", "reference", "options"),
    [
        (np.zeros(3, bool), np.zeros(4, bool), {}),
        (np.zeros(0, bool), np.zeros(0, bool), {}),
        (np.zeros(3, bool), np.zeros(3, bool), {"resamples": 0}),
        (np.zeros(3, bool), np.zeros(3, bool), {"confidence": 1.0}),
    ],
)
def test_masks_that_do_not_pair_are_refused(
    wrong: np.ndarray, reference: np.ndarray, options: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        paired_bootstrap(wrong, reference, **options)  # type: ignore[arg-type]
