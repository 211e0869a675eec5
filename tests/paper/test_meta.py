"""The experiment on meta-learned objectives: what it needs, what comes out, and that it continues."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fenchel.cli import app
from fenchel.data.corruptions import CORRUPTIONS, TEST_CORRUPTIONS
from fenchel.data.home import dataset_folder
from fenchel.paper import PRESETS
from fenchel.paper.learned import (
    BASELINES,
    LOG_NAME,
    META,
    SCORES_NAME,
    TASK_LOSSES,
    LearningTask,
    run_tasks,
    tasks_of,
)
from fenchel.paper.learned_numbers import learned_csv, learned_verdict
from fenchel.paper.planning import PresetPlan, find_checkpoints, plan_preset

SaveCheckpoint = Callable[..., Path]
IMAGES = 100
SOURCES = ("cross-entropy", "squared")


@pytest.fixture
def planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_checkpoint: SaveCheckpoint
) -> PresetPlan:
    """CIFAR-10-C with 100 images of noise a severity, and two sources that were never trained."""
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    folder = dataset_folder("cifar10-c") / "CIFAR-10-C"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    np.save(folder / "labels.npy", np.tile(random.integers(0, 10, IMAGES), 5))
    for name in CORRUPTIONS:
        noise = random.integers(0, 256, (5 * IMAGES, 32, 32, 3), dtype=np.uint8)
        np.save(folder / f"{name}.npy", noise)
    for loss in SOURCES:
        save_checkpoint("cifar10", loss, f"runs/{loss}", architecture="digit_network")
    return plan_preset(PRESETS[META], "smoke", find_checkpoints([tmp_path / "runs"]))


def test_all_nineteen_corruptions_are_needed(planned: PresetPlan) -> None:
    for line in planned.lines:
        assert line.missing == ()
        assert (line.shifts, line.shifts_wanted) == (19, 19)
        assert line.plan.jobs == ()


def test_baselines_are_scored_once_for_a_source_and_a_seed(
    planned: PresetPlan, tmp_path: Path
) -> None:
    seeds = (0, 1, 2)
    lines = [replace(line, scale=replace(line.scale, seeds=seeds)) for line in planned.lines]
    tasks = tasks_of(replace(planned, lines=tuple(lines)), tmp_path)
    for source in SOURCES:
        for task_loss in (*TASK_LOSSES[source], None):
            found = [p.seed for p in tasks if (p.source, p.task_loss) == (source, task_loss)]
            assert found == [0, 1, 2]
    assert len({task.folder for task in tasks}) == len(tasks) == 21
    assert [task.task_loss for task in tasks[-6:]] == [None] * 6  # short ones last


def test_a_source_that_is_missing_leaves_the_other_one(planned: PresetPlan, tmp_path: Path) -> None:
    first, second = planned.lines
    alone = replace(planned, lines=(replace(first, checkpoint=None), second))
    assert {task.source for task in tasks_of(alone, tmp_path)} == {"squared"}


class Stop(Exception):
    """Ends a run after some tasks."""


def test_workers_and_interruptions_leave_no_mark_on_the_numbers(
    planned: PresetPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two task losses, and 50 images a shift."""
    monkeypatch.setitem(TASK_LOSSES, "cross-entropy", ("cross-entropy", "squared"))  # type: ignore[arg-type]
    line = replace(planned.lines[0], scale=replace(planned.lines[0].scale, limit=50))
    planned = replace(planned, lines=(line,))
    whole = tasks_of(planned, tmp_path / "whole")
    outcome = run_tasks(whole)
    numbers = learned_csv(outcome)

    heard: list[LearningTask] = []

    def interrupt(task: LearningTask) -> None:
        heard.append(task)
        if len(heard) == 2:
            raise Stop

    with pytest.raises(Stop):
        run_tasks(tasks_of(planned, tmp_path / "again"), done=interrupt)
    again = tasks_of(planned, tmp_path / "again")
    scores = again[0].folder / SCORES_NAME
    before = scores.stat().st_mtime_ns
    assert learned_csv(run_tasks(again, workers=2)) == numbers
    assert scores.stat().st_mtime_ns == before  # what was done is not done again
    assert (again[-1].folder / LOG_NAME).is_file()
    for ours, theirs in zip(whole, again, strict=True):
        for file in ("learned.safetensors", "fit.json"):
            assert (ours.folder / file).is_file() == (ours.task_loss is not None)
            if ours.task_loss is not None:
                assert (ours.folder / file).read_bytes() == (theirs.folder / file).read_bytes()

    rows = list(csv.DictReader(io.StringIO(numbers)))
    keys = [(row["source"], row["task_loss"], row["objective"]) for row in rows]
    assert len(set(keys)) == len(keys) == 3 + 2 * 3
    assert {key[2] for key in keys if not key[1]} == set(BASELINES)
    for row in rows:
        errors = [float(row[f"{name}_5"]) for name in TEST_CORRUPTIONS]
        assert float(row["error"]) == pytest.approx(np.mean(errors), abs=1e-12)
        assert (row["better"] == "") == (row["task_loss"] == "")
    # For cross-entropy the conjugate objective is the entropy.
    by_key = dict(zip(keys, (row["error"] for row in rows), strict=True))
    assert by_key["cross-entropy", "", "entropy"] == by_key["cross-entropy", "", "conjugate"]
    assert len(learned_verdict(outcome)) == 2 * (1 + 5)


def test_the_papers_numbers_are_those_of_its_figure() -> None:
    cross_entropy, squared = PRESETS[META].lines
    assert (cross_entropy.runs["entropy"].error, cross_entropy.runs["entropy fit"].error) == (
        13.14,
        12.32,
    )
    assert (squared.runs["learned"].error, squared.runs["quadratic fit"].error) == (13.48, 13.20)


def test_the_scale_for_a_cpu_has_three_seeds_and_the_full_one_the_papers_length() -> None:
    preset = PRESETS[META]
    scales = {name: preset.scale(preset.lines[0], name) for name in ("full", "cpu", "smoke")}
    assert [len(scale.seeds) for scale in scales.values()] == [3, 3, 1]
    assert scales["full"].limit is None


def test_the_command_leaves_rows_figure_and_page(
    planned: PresetPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", META, "--scale", "smoke", "--checkpoints", "runs/squared"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert re.search(r"squared +cross-entropy +learned +\d+\.\d\d +13\.48", result.stdout)
    assert "learned against conjugate" in result.stdout
    assert "missing: a checkpoint trained on cifar10 with cross-entropy" in result.stdout
    folder = Path("reproduce") / META
    for name in ("fig-meta.csv", "fig-meta.png", "fig-meta.svg", "fig-meta.pdf", "report.html"):
        assert (folder / name).is_file()
    printed = CliRunner().invoke(app, [*command, "--format", "csv"], catch_exceptions=False)
    assert printed.stdout == (folder / "fig-meta.csv").read_text(encoding="utf-8")
