"""The table of hostile streams: what is in it, what is planned, and what its numbers mean."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from fenchel.adapters import METHODS
from fenchel.bench.driver import run_plan
from fenchel.bench.executors import make_executor
from fenchel.bench.exports import as_csv
from fenchel.bench.record import Cell, Record
from fenchel.bench.running import run_job
from fenchel.bench.store import Store
from fenchel.bench.tuned import Choice, Tuned
from fenchel.data import DATASETS
from fenchel.data.formats.cifar_binary import write_binary
from fenchel.data.home import dataset_folder
from fenchel.names import parse_spec
from fenchel.paper import PRESETS
from fenchel.paper.hostile import HostileTable, Row, hostile_table
from fenchel.paper.hostile_numbers import (
    HostileRow,
    hostile_csv,
    hostile_layout,
    hostile_rows,
    summary,
)
from fenchel.paper.hostile_planning import HostilePlan, plan_hostile
from fenchel.paper.hostile_verdicts import verdicts_csv, watched_runs
from fenchel.paper.planning import find_checkpoints

SaveCheckpoint = Callable[..., Path]
RESULTS = Path(__file__).parents[2] / "results"
FIVE = ("gaussian_noise", "glass_blur", "fog", "contrast", "jpeg_compression")


@pytest.fixture
def photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CIFAR-10 of 120 random test images, of which CIFAR-10-C is made on the fly."""
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    folder = dataset_folder("cifar10")
    folder.mkdir(parents=True)
    DATASETS["cifar10"].write_example(folder)  # type: ignore[misc]
    (test_file,) = folder.rglob("test_batch.bin")
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (120, 32, 32, 3), dtype=np.uint8)
    write_binary(test_file, images, random.integers(0, 10, 120))
    return folder


@pytest.fixture
def planned(save_checkpoint: SaveCheckpoint, photographs: Path) -> HostilePlan:
    return plan_for(
        save_checkpoint("cifar10", "cross-entropy", architecture="digit_network"), "smoke"
    )


def plan_for(checkpoint: Path, scale: str) -> HostilePlan:
    return plan_hostile(hostile_table(), PRESETS["hostile"], scale, find_checkpoints([checkpoint]))


def row_of(title: str, table: HostileTable | None = None) -> Row:
    (found,) = (row for row in (table or hostile_table()).rows if row.title == title)
    return found


# what is in it


def test_the_table_names_things_that_exist() -> None:
    table = hostile_table()
    assert all(parse_spec(column.method)[0] in METHODS for column in table.columns)
    assert sum(len(row.goals) for row in table.rows) == 14
    titles = {network.title for network in table.networks}
    assert all(set(row.goals) <= titles for row in table.rows)
    for network in table.networks:
        assert set(network.rows) <= {row.title for row in table.rows}
    settings = {row.choice(PRESETS["hostile"].scales["cpu"]).setting for row in table.rows}
    assert {"recurring", "bursts", "clean-then-shift-then-clean", "mixed"} < settings


def test_the_five_corruptions_are_as_hard_as_the_goals_suppose() -> None:
    for title in ("recurring", "batch size 1", "batch size 4", "clean, shifted, clean"):
        assert row_of(title).stream.corruptions == FIVE
    with (RESULTS / "table-ce-shifts.csv").open(encoding="utf-8") as file:
        errors = {
            row["shift"]: float(row["ours"])
            for row in csv.DictReader(file)
            if (row["line"], row["method"]) == ("CIFAR-10-C, T = 1", "source")
        }
    assert fmean(errors[name] for name in FIVE) == pytest.approx(55.4, abs=0.5)


def test_a_row_that_multiplies_rates_does_so_for_those_that_were_tuned() -> None:
    row, plain = row_of("rate x 100"), row_of("continual")
    columns = {column.name: column for column in hostile_table().columns}
    tuned = {"optimizer": "adam", "learning_rate": 0.01, "temperature": 1.0}
    for name in ("tuned", "eta", "default"):
        assert columns[name].choice(row, tuned).grid["learning_rate"] == [1.0]
    assert columns["default"].choice(row, tuned).grid["protect"] == ["auto"]
    assert columns["default"].choice(plain, tuned).grid == {"protect": ["auto"]}
    assert columns["tuned"].choice(plain, tuned).grid["learning_rate"] == [0.01]
    assert not columns["bare"].runs_in(row)
    assert all(columns[name].runs_in(row) for name in ("source", "bn", "lame"))


# what is planned


def test_every_stream_is_planned_seed_by_seed_and_what_runs_once_comes_last(
    planned: HostilePlan,
) -> None:
    jobs = planned.plan().jobs
    assert {row.network.title for row in planned.rows if row.line.plan.jobs} == {"cross-entropy"}
    assert planned.untuned == ("cross-entropy",)
    asked = {request.key: request.method for request in planned.plan().requests}
    columns = {column.name: column for column in planned.table.columns}
    shared = {
        request.key
        for request in planned.plan().requests
        if not columns[request.method].first_seed_alone
    }
    last = [job.cell.key not in shared for job in jobs]
    assert last == sorted(last)
    # TENT is the conjugate; no bare and no watched run at rate x 100
    assert len(asked) == len(jobs) == 12 * 15 - 1 - 4
    for job in jobs:
        described = [row.title for row in planned.table.rows if row.describes(job.cell, SMOKE)]
        assert len(described) == 1
        assert job.cell.key in {
            key
            for column in planned.table.columns
            for key in planned.keys_of(("cross-entropy", described[0], column.name))
        }


SMOKE = PRESETS["hostile"].scales["smoke"]


def test_columns_and_rows_can_be_chosen(planned: HostilePlan) -> None:
    chosen = planned.plan(["source", "default"], ["sorted", "clean"])
    assert len(chosen.jobs) == 4
    assert {job.cell.method for job in chosen.jobs} == {"source", "conjugate"}
    assert {job.cell.protect for job in chosen.jobs} == {None, "auto"}
    with pytest.raises(ValueError, match="Did you mean 'default'"):
        planned.plan(["defalt"])
    with pytest.raises(ValueError, match="sorted"):
        planned.plan(rows=["sort"])


def test_tuned_settings_beside_the_checkpoint_are_taken_and_seeds_are_three(
    save_checkpoint: SaveCheckpoint, photographs: Path
) -> None:
    path = save_checkpoint("cifar10", "cross-entropy", architecture="digit_network")
    methods = {column.tuned for column in hostile_table().columns if column.tuned}
    choices = tuple(
        Choice(
            architecture="digit_network",
            loss="cross-entropy",
            method=method,
            settings={"learning_rate": 0.25, "temperature": 1.0, "optimizer": "adam"},
            validation_error=1.0,
            trials=2,
        )
        for method in methods
    )
    Tuned(choices=choices, protocol={}).write(path.with_suffix(".streams.json"))
    found = plan_for(path, "cpu")
    assert found.untuned == ()
    cells = {job.cell.key: job.cell for job in found.plan(rows=["continual"]).jobs}

    def of(column: str) -> list[Cell]:
        keys = found.keys_of(("cross-entropy", "continual", column))
        return [cells[key] for key in keys]

    assert [cell.seed for cell in of("default")] == [0, 1, 2]
    assert [(cell.seed, cell.learning_rate) for cell in of("eta")] == [(0, 0.25)]
    assert [cell.learning_rate for cell in of("bare")] == [1e-3] * 3
    assert {(cell.optimizer, cell.learning_rate) for cell in of("default")} == {(None, None)}


def test_a_network_with_group_norm_is_that_one_or_none(planned: HostilePlan) -> None:
    missing = [row for row in planned.rows if row.network.title == "GroupNorm"]
    assert [row.row.title for row in missing] == ["continual", "sorted"]
    assert all(row.line.checkpoint is None for row in missing)
    assert "resnet26_groupnorm" in "\n".join(planned.whole.missing_lines())


# what its numbers mean


def test_a_few_cells_run_and_become_numbers(planned: HostilePlan) -> None:
    titles = ["rate x 100", "black-outs", "clean, shifted, clean"]
    plan = planned.plan(["source", "default"], titles)
    records = {job.cell.key: run_job(job) for job in plan.jobs}
    assert {record.error for record in records.values()} == {""}
    rows = hostile_rows(
        planned.table, lambda place: [records[k] for k in planned.keys_of(place) if k in records]
    )
    run = {row.row.title: row for row in rows if row.numbers["default"].errors}
    assert list(run) == titles
    (key,) = planned.keys_of(("cross-entropy", "black-outs", "source"))
    dark = records[key]
    assert dark.batch_sizes == (5, 5, 5, 5, 5, 0, 0, 5, 5, 5)
    after = 100 * sum(dark.batch_wrong[7:]) / 15
    assert run["black-outs"].numbers["source"].errors == (pytest.approx(after),)
    table = list(csv.DictReader(io.StringIO(hostile_csv(rows))))
    assert len(table) == sum(len(row.numbers) for row in rows)
    default = next(r for r in table if (r["stream"], r["column"]) == ("rate x 100", "default"))
    assert default["setting"] == "conjugate, adam 0.1, protect auto"


def made_up(errors: dict[str, float], title: str = "sorted") -> HostileRow:
    """A row whose runs had these errors, in percent, over a thousand images."""
    table = hostile_table()

    def records(place: tuple[str, str, str]) -> list[Record]:
        if place[:2] != ("cross-entropy", title) or place[2] not in errors:
            return []
        wrong = round(10 * errors[place[2]])
        cell = Cell(data="d", shifts=(), architecture="a", loss="l", model_digest="m", method="bn")
        return [
            Record(cell=replace(cell, seed=seed), status="done", samples=1000, wrong=wrong)
            for seed in (0, 1)
        ]

    rows = hostile_rows(table, records)
    (found,) = (r for r in rows if (r.network.title, r.row.title) == ("cross-entropy", title))
    return found


@pytest.mark.parametrize(
    ("default", "meets", "harm", "verdict"),
    [
        (36.0, True, False, "met"),
        (36.1, False, False, "missed by 0.1"),
        (49.4, False, False, "missed by 13.4"),
        (49.6, False, True, "missed by 13.6, above source + 0.5"),
    ],
)
def test_goals_and_harm_are_marked(default: float, meets: bool, harm: bool, verdict: str) -> None:
    row = made_up({"source": 48.9, "default": default, "lame": 35.6, "eta": 60.0})
    assert (row.meets_goal, row.does_harm, row.verdict) == (meets, harm, verdict)
    assert row.best_peer is not None
    layout = hostile_layout([row], row.network, "")
    texts = dict(zip(layout.headings, layout.rows[0], strict=True))
    assert texts["best peer"].text == "35.6 ± 0.0 (LAME)"
    assert texts["protected default"].emphasis == ("best" if meets else "")
    assert texts["goal"].text == "36.0"
    goals, above = summary([row])
    assert goals.endswith(f"{int(meets)} of 1")
    assert ("1 of 1" in above) == harm


def test_a_goal_that_is_nearly_met_is_missed_all_the_same() -> None:
    row = made_up({"source": 48.9, "default": 36.1})
    near = replace(row, row=replace(row.row, goals={"cross-entropy": 36.08}))
    assert (near.meets_goal, near.verdict) == (False, "missed by less than 0.1")


def test_without_a_number_there_is_no_verdict() -> None:
    row = made_up({"source": 48.9})
    assert (row.meets_goal, row.does_harm, row.verdict) == (None, None, "")
    assert summary([row])[0].endswith("0 of 0")


def test_a_stream_too_short_for_a_black_out_has_no_number() -> None:
    cell = Cell(data="d", shifts=(), architecture="a", loss="l", model_digest="m", method="bn")
    record = Record(cell=cell, status="done", samples=9, batch_sizes=(5, 4), batch_wrong=(1, 1))
    assert row_of("black-outs").error(record) is None


# what is published


def test_the_published_table_is_made_of_its_cells_alone(
    save_checkpoint: SaveCheckpoint,
    photographs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(RESULTS))
    publishing = importlib.import_module("hostile")
    assert publishing.hostile_tables().keys() <= {"hostile.csv", "hostile-verdicts.csv"}
    found = plan_for(save_checkpoint("cifar10", "cross-entropy"), "smoke")
    plan = found.plan(["source", "default", "lame"], ["rate x 100", "black-outs"])
    with Store(tmp_path / "hostile.sqlite") as store, make_executor("serial") as executor:
        run_plan(plan, store, executor)
        records = {record.key: record for record in store.records()}
        cells = tmp_path / "cells-hostile.csv"
        cells.write_text(as_csv(store), encoding="utf-8")
    monkeypatch.setattr(publishing, "CELLS", cells)
    monkeypatch.setattr(publishing, "SCALE", "smoke")
    kept = (publishing._rows, publishing._runs, publishing._published)
    for each in kept:
        each.cache_clear()

    def records_of(place: tuple[str, str, str]) -> list[Record]:
        return [records[key] for key in found.keys_of(place) if key in records]

    try:
        rows = hostile_rows(found.table, records_of)
        runs = watched_runs(found.table, records_of)
        assert publishing.hostile_tables() == {
            "hostile.csv": hostile_csv(rows),
            "hostile-verdicts.csv": verdicts_csv(runs),
        }
        assert {run.column for run in runs} == {"default"}
        assert "protected default" in publishing.noticed()
        assert publishing.networks() == ["cross-entropy"]
        assert publishing.verdicts() == summary(rows)
        error = publishing.number_of("cross-entropy", "black-outs", "default")
        (line,) = (t for t in publishing.table("cross-entropy").splitlines() if "black-outs" in t)
        assert error in line
        assert publishing.number_of("cross-entropy", "rate x 100", "lame") in publishing.peers(
            "cross-entropy"
        )
    finally:
        for each in kept:
            each.cache_clear()
