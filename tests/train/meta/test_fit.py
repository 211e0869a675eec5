"""The fits recover what they are fitted to, and say which formula it was."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares

from fenchel.losses import PolyLoss
from fenchel.objectives import Conjugate, Entropy, Quadratic, ScaledEntropy
from fenchel.train.meta import Fits, fit, uniform_logits

TEMPERATURES = (0.3, 1.0, 4.0)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_scaled_entropy_is_recovered(temperature):
    truth = ScaledEntropy(alpha=-2.0, offset=0.7, temperature=temperature)
    found = fit(truth, 3 * torch.randn(500, 10))
    assert found.better == "entropy"
    assert found.entropy.r_squared == pytest.approx(1)
    made = found.entropy.objective
    assert (made.alpha, made.offset, made.temperature) == pytest.approx(
        (-2.0, 0.7, temperature), rel=1e-4
    )
    assert found.quadratic.r_squared < 0.99


def test_a_quadratic_is_recovered():
    truth = Quadratic(a=-0.25, offset=0.1)
    found = fit(truth, 1 + torch.randn(500, 10))
    assert found.better == "quadratic"
    assert found.quadratic.r_squared == pytest.approx(1)
    made = found.quadratic.objective
    assert (made.a, made.offset) == pytest.approx((-0.25, 0.1))
    assert found.entropy.r_squared < 0.999


def test_an_inexact_fit_equals_a_general_least_squares_solver():
    objective = Conjugate(PolyLoss(epsilon=6.0))
    h = 2 * torch.randn(300, 5, dtype=torch.float64)
    values = objective(h).numpy()

    def residuals(place):
        alpha, offset, log_temperature = place
        made = ScaledEntropy(alpha=alpha, offset=offset, temperature=math.exp(log_temperature))
        return made(h).numpy() - values

    starts = [(sign, 0.0, start) for sign in (1.0, -1.0) for start in (-1.0, 0.0, 1.0, 2.0)]
    best = min((least_squares(residuals, start) for start in starts), key=lambda r: r.cost)
    found = fit(objective, h)
    total = ((values - values.mean()) ** 2).sum()
    assert found.entropy.r_squared == pytest.approx(1 - 2 * best.cost / total, abs=1e-6)
    assert 0.5 < found.entropy.r_squared < 0.9999


def test_a_preference_for_classes_hides_no_formula():
    h = torch.randn(400, 6, dtype=torch.float64)
    preferred = torch.arange(6.0, dtype=torch.float64)
    hidden = {
        "quadratic": lambda h: Quadratic(a=-0.25)(h) + h @ preferred,
        "entropy": lambda h: ScaledEntropy(alpha=2.0, temperature=0.5)(h) + h @ preferred,
    }
    for name, objective in hidden.items():
        found = fit(objective, h)
        assert found.by_name()[name].r_squared < 0.2
        assert found.by_name()[name].beyond_linear == pytest.approx(1)
        other = "entropy" if name == "quadratic" else "quadratic"
        assert found.by_name()[other].beyond_linear < 0.99


def test_shares_beyond_linear_are_those_of_one_large_regression():
    h = torch.randn(300, 5, dtype=torch.float64)
    values = (Entropy(temperature=0.3)(h) + h[:, 0] ** 3).numpy()
    found = fit(lambda h: torch.tensor(values), h)

    def explained(*columns):
        design = np.column_stack([np.ones(len(h)), h.numpy(), *columns])
        left = values - design @ np.linalg.lstsq(design, values)[0]
        return 1 - (left @ left) / ((values - values.mean()) ** 2).sum()

    both = explained(h.square().sum(-1).numpy())
    assert found.linear == pytest.approx(explained())
    assert found.quadratic.beyond_linear == pytest.approx(
        (both - explained()) / (1 - explained()), abs=1e-9
    )


def test_aic_is_that_of_gaussian_residuals():
    h = torch.randn(200, 4, dtype=torch.float64)
    found = fit(Entropy(), h).quadratic
    residual = Entropy()(h) - found.objective(h)
    expected = 200 * math.log(residual.square().mean().item()) + 2 * (2 + 1)
    assert found.aic == pytest.approx(expected)


def test_fits_survive_json():
    found = fit(Entropy(temperature=2.0), torch.randn(50, 4))
    again = Fits.from_record(json.loads(json.dumps(found.record())))
    assert again == found


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(ValueError, match="at least 5 samples"):
        fit(Entropy(), torch.randn(3, 4))
    with pytest.raises(ValueError, match="finite logits"):
        fit(Entropy(), torch.full((9, 4), float("nan")))
    with pytest.raises(ValueError, match="varies over the logits"):
        fit(dataclasses.replace(Quadratic(), a=0.0), torch.randn(9, 4))
    with pytest.raises(ValueError, match="holds something else"):
        Fits.from_record({"entropy": {}})


def test_even_logits_fill_their_range():
    h = uniform_logits(1000, 3, -5, 15)
    assert h.shape == (1000, 3)
    assert -5 <= h.min() < -4.8
    assert 14.8 < h.max() <= 15
    with pytest.raises(ValueError, match="LOW < HIGH"):
        uniform_logits(10, 3, 2, 1)
