"""The tables of docs/settings.md, from rows that are known."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def calibrating(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RESULTS))
    return importlib.import_module("calibrating")


def given(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, **files: list[dict[str, Any]]
) -> None:
    named = {name.replace("_", "-"): rows for name, rows in files.items()}
    monkeypatch.setattr(module, "rows_of", lambda name: named.get(name, []))


def measured(settings: str, fog: float, snow: float) -> list[dict[str, str]]:
    return [
        {"source": "ce", "settings": settings, "corruption": corruption, "seed": "0", "images": "10",
         "error": str(error)}
        for corruption, error in (("fog", fog), ("snow", snow))
    ]  # fmt: skip


def test_errors_stand_beside_the_tuned_ones_and_the_worst_corruption_counts(
    calibrating: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        *measured("batch statistics alone", 30, 40),
        *measured("tuned on validation corruptions", 20, 30),
        *measured("level 3: the model alone", 24, 43),
    ]
    given(calibrating, monkeypatch, settings_checks_ce=rows)
    lines = calibrating.table().strip().splitlines()
    assert [cell.strip() for cell in lines[-1].strip("|").split("|")] == [
        "level 3: the model alone", "33.50", "+8.50", "+3.0",
    ]  # fmt: skip
    assert "2 corruptions, 10 images each, seeds: 1" in calibrating.protocol()


def test_a_score_that_orders_runs_by_their_error_has_a_correlation_of_one(
    calibrating: ModuleType,
) -> None:
    rows = [
        {"corruption": corruption, "error": str(error), "entropy": str(error**2),
         "mutual_information": str(-error)}
        for corruption in ("fog", "snow")
        for error in (10, 20, 30, 40)
    ]  # fmt: skip
    assert calibrating.correlation(rows, "entropy") == pytest.approx(1)
    assert calibrating.correlation(rows, "mutual_information") == pytest.approx(1)
    backwards = [{**row, "entropy": str(-float(row["error"]))} for row in rows]
    assert calibrating.correlation(backwards, "entropy") == pytest.approx(-1)


def test_the_error_of_a_choice_is_that_of_the_run_with_the_best_score(
    calibrating: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(corruption: str, rate: float, error: float, entropy: float) -> dict[str, str]:
        return {"source": "ce", "method": "default", "corruption": corruption, "learning_rate": str(rate),
                "temperature": "1", "images": "10", "error": str(error), "entropy": str(entropy)}  # fmt: skip

    rows = [
        run("fog", 0.25, 30, 2), run("fog", 1, 20, 1), run("fog", 4, 50, 3),
        run("snow", 0.25, 30, 2), run("snow", 1, 10, 3), run("snow", 4, 70, 1),
        run("snow", 1 / 16, 0, 0),  # does not run side by side with the others
    ]  # fmt: skip
    given(calibrating, monkeypatch, score_checks=rows)
    assert calibrating.error_of_choice(rows[:6], "entropy") == pytest.approx((20 + 70) / 2)
    usual, by_entropy = calibrating.chosen_rates().strip().splitlines()[-2:]
    assert "15.00" in usual
    assert "45.00" in by_entropy


def test_other_networks_have_a_column_per_target_or_one_of_all_corruptions(
    calibrating: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(source: str, settings: str, target: str, error: float) -> dict[str, str]:
        return {"source": source, "settings": settings, "corruption": target, "seed": "0",
                "images": "10", "error": str(error)}  # fmt: skip

    corrupted = [
        row("groupnorm", "the source", name, error)
        for name, error in (("fog", 10), ("snow", 20), ("frost", 30), ("contrast", 40))
    ]
    digits = [row("svhn", way, "usps", e) for way, e in (("the source", 5), ("tuned", 4))]
    given(
        calibrating, monkeypatch, settings_checks_groupnorm=corrupted, settings_checks_svhn=digits
    )
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in calibrating.others().strip().splitlines()
    ]
    assert lines[0] == ["settings", "GroupNorm, CIFAR-10-C", "SVHN to usps"]
    assert lines[2:] == [["the source", "25.00", "5.00"], ["tuned", "-", "4.00"]]
