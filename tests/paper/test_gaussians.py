"""The appendix experiment: its choices, its reproducibility, and that every weight moves."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fenchel.paper import gaussian_experiment as gaussians
from fenchel.paper.gaussian_experiment import GaussianSettings, gaussian_settings, run_gaussians

SMALL = GaussianSettings(draws=2, samples=400, dimension=10, iterations=5, training_steps=30)


def test_the_standard_choices_are_those_that_are_documented() -> None:
    settings = GaussianSettings()
    assert settings.shifts == (0.6, 0.65, 0.7)
    assert settings.methods == ("conjugate", "hard", "entropy")
    assert (settings.dimension, settings.samples, settings.parameters) == (100, 10_000, "all")
    assert settings.draws >= 10


@pytest.mark.parametrize("scale", ["full", "cpu", "smoke"])
def test_every_scale_draws_at_least_ten_times(scale: str) -> None:
    assert gaussian_settings(scale).draws >= 10


def test_a_curve_begins_with_the_source_and_has_a_point_a_step() -> None:
    outcome = run_gaussians(SMALL)
    for shift in SMALL.shifts:
        curves = [outcome.accuracies[shift, method] for method in SMALL.methods]
        assert all(curve.shape == (2, 6) for curve in curves)
        assert all(np.array_equal(curve[:, 0], curves[0][:, 0]) for curve in curves)
        assert not np.array_equal(curves[0][:, 1:], curves[1][:, 1:])


def test_the_source_separates_its_own_clusters() -> None:
    outcome = run_gaussians(replace(SMALL, dimension=100))
    assert min(outcome.source_accuracies) > 99


def test_the_same_settings_give_the_same_curves_and_other_seeds_others() -> None:
    one, two = run_gaussians(SMALL), run_gaussians(SMALL)
    other = run_gaussians(replace(SMALL, first_seed=7))
    for key, curve in one.accuracies.items():
        assert np.array_equal(curve, two.accuracies[key])
    assert any(not np.array_equal(c, other.accuracies[k]) for k, c in one.accuracies.items())


def test_a_draw_is_the_same_whatever_comes_before_it() -> None:
    second = run_gaussians(replace(SMALL, draws=1, first_seed=1))
    both = run_gaussians(SMALL)
    for key, curve in second.accuracies.items():
        assert np.array_equal(curve[0], both.accuracies[key][1])


def test_every_weight_and_the_offset_move(monkeypatch: pytest.MonkeyPatch) -> None:
    adapters = []

    def spy(model: torch.nn.Module, **options: object) -> object:
        adapters.append((model, adapt(model, **options)))  # type: ignore[arg-type]
        return adapters[-1][1]

    adapt = gaussians.adapt
    monkeypatch.setattr(gaussians, "adapt", spy)
    run_gaussians(replace(SMALL, draws=1))
    assert len(adapters) == 9
    for model, adapter in adapters:
        moved = adapter.state.parameters
        source = dict(model.named_parameters())
        assert set(moved) == set(source)
        assert all(bool((moved[name] != source[name]).all()) for name in source)


def test_the_outcome_records_every_choice() -> None:
    outcome = run_gaussians(SMALL)
    values = json.loads(json.dumps(outcome.to_json()))
    assert values["settings"]["low_variance"] == 1.0
    assert values["settings"].keys() == SMALL.__dataclass_fields__.keys()
    assert values["loss"] == "exponential"
    assert len(values["curves"]) == 9
    assert np.array(values["curves"][0]["accuracies"]).shape == (2, 6)


def test_advance_is_called_after_each_adaptation() -> None:
    calls = []
    run_gaussians(replace(SMALL, draws=1), lambda: calls.append(1))
    assert len(calls) == 9


def test_no_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="draws"):
        GaussianSettings(draws=0)


def test_the_number_of_torch_threads_comes_back() -> None:
    torch.set_num_threads(2)
    try:
        run_gaussians(replace(SMALL, draws=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
