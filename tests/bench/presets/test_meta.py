"""The meta-learned preset: what it needs, what comes out, and that it continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fenchel.bench.presets import PRESETS
from fenchel.bench.presets.available import LinePlan, find_checkpoints, plan_preset
from fenchel.bench.presets.meta import META, compare_meta, run_meta
from fenchel.data.corruptions import CORRUPTIONS
from fenchel.data.home import dataset_folder

SaveCheckpoint = Callable[..., Path]
IMAGES = 64


@pytest.fixture
def planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_checkpoint: SaveCheckpoint
) -> LinePlan:
    """CIFAR-10-C with 64 images of noise a severity, and a source that was never trained."""
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    folder = dataset_folder("cifar10-c") / "CIFAR-10-C"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    np.save(folder / "labels.npy", np.tile(random.integers(0, 10, IMAGES), 5))
    for name in CORRUPTIONS:
        np.save(
            folder / f"{name}.npy", random.integers(0, 256, (5 * IMAGES, 32, 32, 3), dtype=np.uint8)
        )
    path = save_checkpoint("cifar10", "cross-entropy", architecture="digit_network")
    line = plan_preset(PRESETS[META], "smoke", find_checkpoints([path])).lines[0]
    return replace(line, scale=replace(line.scale, batch_size=16))


def test_all_nineteen_corruptions_are_needed(planned: LinePlan) -> None:
    assert planned.missing == ()
    assert (planned.shifts, planned.shifts_wanted) == (19, 19)
    assert planned.plan.jobs == ()


def test_every_objective_of_the_line_is_scored_beside_the_paper(
    planned: LinePlan, tmp_path: Path
) -> None:
    outcome = run_meta(planned, tmp_path / "meta")
    assert set(outcome.errors) == set(planned.line.runs)
    # For cross-entropy the conjugate objective is the entropy.
    assert outcome.errors["entropy"] == outcome.errors["conjugate"]
    assert outcome.fits.better in ("entropy", "quadratic")
    rows = {row.method: row for row in compare_meta(planned, outcome)}
    assert rows["learned"].errors == (outcome.errors["learned"],)
    assert rows["learned"].run.error == 12.35
    scores = tmp_path / "meta" / "scores.json"
    before = scores.stat().st_mtime_ns
    assert run_meta(planned, tmp_path / "meta").errors == outcome.errors
    assert scores.stat().st_mtime_ns == before


def test_without_a_source_everything_is_missing(planned: LinePlan, tmp_path: Path) -> None:
    alone = replace(planned, checkpoint=None)
    assert all(row.errors == () for row in compare_meta(alone, None))
    with pytest.raises(ValueError, match="source model"):
        run_meta(alone, tmp_path)


def test_the_papers_numbers_are_those_of_its_figure() -> None:
    cross_entropy, squared = PRESETS[META].lines
    assert (cross_entropy.runs["entropy"].error, cross_entropy.runs["entropy fit"].error) == (
        13.14,
        12.32,
    )
    assert (squared.runs["learned"].error, squared.runs["quadratic fit"].error) == (13.48, 13.20)
