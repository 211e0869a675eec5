"""The presets hold the paper's settings and numbers, and plan what the data at hand allow."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from fenchel.adapters import METHODS
from fenchel.bench.record import Record
from fenchel.bench.running import run_job
from fenchel.bench.tuned import Choice, Tuned
from fenchel.data import DATASETS
from fenchel.models import MODELS, PRETRAINED
from fenchel.names import format_spec, parse_spec
from fenchel.paper import PRESETS, SCALES, Line, SourceModel
from fenchel.paper.comparison import compare, task_loss_curves
from fenchel.paper.comparison_tables import (
    comparison_csv,
    comparison_table,
    severity_figures,
    shifts_csv,
)
from fenchel.paper.pairing import compared_with, differences
from fenchel.paper.planning import PresetPlan, find_checkpoints, plan_preset
from fenchel.paper.preset import Part
from fenchel.report.significance import compare_records
from fenchel.report.student import over_streams

SaveCheckpoint = Callable[..., Path]
LINES = [
    (preset.name, line)
    for preset in PRESETS.values()
    if preset.figure not in ("learned", "streams")
    for line in preset.lines
]
NAMES = (
    "table-ce", "table-poly", "table-domain", "table-severity", "table-squared", "table-ce-digits",
    "table-bce", "fig-task-loss", "fig-gaussian", "fig-gaussian-map", "fig-meta", "streams",
    "hostile",
)  # fmt: skip


def line_of(preset: str, title: str) -> Line:
    (found,) = (line for line in PRESETS[preset].lines if line.title == title)
    return found


def test_every_table_and_figure_of_the_paper_is_there() -> None:
    assert sorted(PRESETS) == sorted(NAMES)


@pytest.mark.parametrize(
    ("preset", "line"), LINES, ids=lambda value: value if isinstance(value, str) else value.title
)
def test_a_line_names_things_that_exist(preset: str, line: Line) -> None:
    assert parse_spec(line.data)[0] in DATASETS
    assert parse_spec(line.source.data)[0] in DATASETS
    assert all(name in MODELS for name in line.source.architectures)
    assert all(parse_spec(method)[0] in METHODS for method in line.runs)
    assert list(line.runs)[-1] == "conjugate"
    for scale in SCALES:
        assert PRESETS[preset].scale(line, scale).batch_size > 0
    for method, run in line.runs.items():
        assert (method in ("source", "bn")) == (run.optimizer is None)


def test_what_the_paper_does_not_have_is_named_in_the_notes_or_is_a_plain_baseline() -> None:
    unpublished = {
        (preset, line.title, method)
        for preset, line in LINES
        for method, run in line.runs.items()
        if run.error is None and method != "bn" and preset != "table-bce"
    }
    ours = ("MNIST-M, T", "CIFAR-10-C severity", "CIFAR-10-C, tuned T", "MobileNetV2", "Lite0")
    ours += (
        "ImageNet-C severity 1, cross",
        "ImageNet-C severity 3, cross",
        "ImageNet-C severity 5, cross",
    )
    assert {
        (preset, title, method)
        for preset, title, method in unpublished
        if not any(mark in title for mark in ours)
    } == {
        ("table-ce", "CIFAR-10-C, T = 1", "entropy"),
        ("table-ce", "CIFAR-10-C, T = 1", "soft"),
        ("table-domain", "SVHN → MNIST", "memo"),
        ("table-domain", "SVHN → USPS", "memo"),
        ("table-domain", "SVHN → MNIST-M", "memo"),
    }


@pytest.mark.parametrize(
    ("preset", "title", "method", "expected"),
    [
        ("table-ce", "CIFAR-10-C, tuned T", "conjugate", ("adam", 1e-3, 2, 12.51, 0.03)),
        ("table-ce", "CIFAR-100-C, tuned T", "robust", ("sgd", 1e-2, 2, 36.37, 0.10)),
        ("table-ce", "ImageNet-C, tuned T", "conjugate", ("sgd", 2.5e-3, 1.5, 45.36, 0.01)),
        ("table-poly", "CIFAR-10-C, T = 1", "memo", ("sgd", 5e-3, 1, 13.23, 0.07)),
        ("table-poly", "CIFAR-10-C, tuned T", "conjugate", ("sgd", 1e-3, 1.5, 12.08, 0.05)),
        ("table-poly", "CIFAR-100-C, tuned T", "robust", ("adam", 1e-3, 3, 39.80, 0.08)),
        ("table-poly", "ImageNet-C, tuned T", "soft", ("sgd", 2.5e-3, 2, 44.45, 0.03)),
        ("table-squared", "CIFAR-10-C, T = 1", "soft", ("sgd", 1e-4, 1, 14.85, 0.08)),
        ("table-squared", "CIFAR-100-C, tuned T", "robust", ("adam", 1e-3, 0.5, 43.99, 0.15)),
        ("table-domain", "SVHN → MNIST", "conjugate", ("adam", 1e-2, 1, 10.73, None)),
        ("table-domain", "ImageNet-R", "conjugate", ("sgd", 2.5e-3, 1, 55.63, None)),
        ("table-ce-digits", "SVHN → USPS, T = 2", "memo", ("adam", 1e-2, 2, 22.42, None)),
        ("table-severity", "ImageNet-C severity 5, tuned T", "entropy", ("sgd", 2.5e-3, 1.5, 61.80, None)),
        ("table-severity", "ImageNet-C severity 1, T = 1", "soft", ("sgd", 2.5e-3, 1, 32.49, None)),
    ],
)  # fmt: skip
def test_settings_and_numbers_are_the_published_ones(
    preset: str, title: str, method: str, expected: tuple[object, ...]
) -> None:
    run = line_of(preset, title).runs[method]
    found = (run.optimizer, run.learning_rate, run.temperature, run.error, run.spread)
    assert found == expected


def test_streams_are_every_source_on_every_stream_with_and_without_the_conjugate_inside() -> None:
    lines = PRESETS["streams"].lines
    assert len(lines) == 3 * 7
    settings = {line.stream.choice(50).setting for line in lines}
    assert settings == {"reset", "continual", "mixed", "recurring", "gradual"}
    for line in lines:
        assert line.stream.choice(50).batch_size == (1 if "batch size 1" in line.title else 50)
        assert all(choice.method in METHODS for choice in line.choices)
        others = [choice for choice in line.choices if "objective" in choice.options]
        assert bool(others) == ("cross-entropy" not in line.title)
        for choice in others:  # each beside itself with the conjugate inside
            options = {k: v for k, v in choice.options.items() if k != "objective"}
            assert format_spec(choice.method, options) in line.runs
    gradual = next(line for line in lines if line.title == "PolyLoss, gradual")
    assert (gradual.data, gradual.severities) == ("cifar10", (1, 2, 3, 4, 5))
    assert (gradual.stream.limit(250), gradual.stream.limit(None)) == (50, None)


def test_another_objective_inside_is_compared_with_the_conjugate_inside() -> None:
    assert compared_with("entropy") == compared_with("eta") == "conjugate"
    assert compared_with("eta:objective=entropy") == "eta"
    assert compared_with("rdumb:every=10,objective=entropy") == "rdumb:every=10"


def test_the_severities_average_to_the_papers_mean() -> None:
    means = {"robust": 49.32, "entropy": 46.13, "memo": 48.21, "soft": 44.62, "conjugate": 44.02}
    lines = [
        line
        for line in PRESETS["table-severity"].lines
        if line.source.data == "imagenet" and line.source.loss == "poly:epsilon=8"
        if line.title.endswith("T = 1")
    ]
    assert [line.severities for line in lines] == [(1,), (2,), (3,), (4,), (5,)]
    for method, mean in means.items():
        errors = [line.runs[method].error or 0.0 for line in lines]
        assert sum(errors) / 5 == pytest.approx(mean, abs=0.011)


def test_the_full_scale_is_the_papers_and_the_smoke_scale_is_small() -> None:
    for preset, line in LINES:
        full = PRESETS[preset].scale(line, "full")
        assert (full.limit, full.batch_size) == (None, 200)
        assert PRESETS[preset].scale(line, "smoke").limit in (32, 100)
    with pytest.raises(ValueError, match="smoke"):
        PRESETS["table-ce"].scale(LINES[0][1], "smok")


def test_a_source_matches_by_data_and_loss() -> None:
    exact = SourceModel(data="cifar10", loss="poly:epsilon=6", architectures=("resnet26",))
    assert exact.matches("cifar10", "poly:epsilon=6.0")
    assert not exact.matches("cifar10", "poly:epsilon=8")
    assert not exact.matches("cifar100", "poly:epsilon=6")
    assert not exact.matches("cifar10", "cross-entropy")
    assert not exact.matches(None, "poly:epsilon=6")
    open_source = SourceModel(data="cifar10", loss="poly", architectures=("resnet26",))
    assert open_source.matches("cifar10", "poly:epsilon=8")


def test_without_anything_all_is_missing_and_told_how_to_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path))
    planned = plan_preset(PRESETS["table-poly"], "smoke", ())
    assert planned.plan.jobs == ()
    told = {item.what: item.how for item in planned.missing}
    assert told["the data set cifar10-c"].startswith("fenchel data fetch cifar10-c")
    assert told["a checkpoint trained on cifar10 with poly:epsilon=6"] == (
        "fenchel train --data cifar10 --model resnet26 --loss poly:epsilon=6"
    )
    full = {item.how for item in plan_preset(PRESETS["table-poly"], "full", ()).missing}
    assert (
        "fenchel train --data cifar10 --model resnet26_wide --loss poly:epsilon=6 --preset paper"
        in full
    )
    assert all(not row.errors for row in compare(planned, {}))


def test_the_papers_architecture_is_preferred(save_checkpoint: SaveCheckpoint, cache: Path) -> None:
    save_checkpoint("cifar10", "poly:epsilon=6", "runs/a", architecture="digit_network")
    path = save_checkpoint("cifar10", "poly:epsilon=6", "runs/b")
    save_checkpoint("cifar10", "poly:epsilon=8", "runs/c")
    (path.parent / "state.safetensors").write_bytes(b"not a checkpoint")
    found = find_checkpoints([path.parents[1]])
    assert len(found) == 3
    (line,) = plan_preset(PRESETS["fig-task-loss"], "smoke", found).lines
    assert line.checkpoint is not None
    assert line.checkpoint.path == path


def test_published_networks_are_fetched_and_no_other_will_do(
    save_checkpoint: SaveCheckpoint, cache: Path
) -> None:
    path = save_checkpoint("imagenet", "cross-entropy", architecture="digit_network")
    planned = plan_preset(PRESETS["table-ce"], "cpu", find_checkpoints([path]))
    lines = [line for line in planned.lines if line.line.source.data == "imagenet"]
    assert all(line.checkpoint is None for line in lines)
    told = {item.what: item.how for item in planned.missing}
    for name in ("resnet50", "mobilenet-v2", "efficientnet-lite0"):
        assert name in PRETRAINED
        assert told[f"the published network {name}"] == f"fenchel models fetch {name}"
    assert "imagenet-c:on-the-fly" in told["the data set imagenet-c"]


def test_a_part_of_a_line_is_run_where_the_whole_would_take_days(
    save_checkpoint: SaveCheckpoint, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = line_of("table-ce", "ImageNet-C, T = 1")
    source = SourceModel(data="cifar10", loss="cross-entropy", architectures=("digit_network",))
    part = Part(corruptions=("fog",), severities=(3,))
    line = replace(whole, data="cifar10-c", source=source, parts={"smoke": part})
    preset = replace(PRESETS["table-ce"], lines=(line,))
    path = save_checkpoint("cifar10", "cross-entropy", architecture="digit_network")
    (planned,) = plan_preset(preset, "smoke", find_checkpoints([path])).lines
    assert (planned.shifts, planned.shifts_wanted) == (1, 75)
    assert planned.missing == ()
    shifts = {job.cell.shifts[0].title for job in planned.plan.jobs}
    assert shifts == {"fog 3"}
    assert whole.parts["cpu"].severities == (1, 3, 5)
    assert len(whole.parts["cpu"].corruptions) == 5


def test_with_label_smoothing_the_conjugate_and_the_entropy_are_one_run(
    save_checkpoint: SaveCheckpoint, cache: Path
) -> None:
    lite = line_of("table-ce", "ImageNet-C severity 5, EfficientNet-Lite0, T = 1")
    assert lite.source.loss == "label-smoothing:smoothing=0.1"
    source = replace(lite.source, data="cifar10", architectures=("digit_network",))
    line = replace(lite, data="cifar10-c", source=source, parts={}, corruptions=("fog",))
    path = save_checkpoint("cifar10", lite.source.loss, architecture="digit_network")
    preset = replace(PRESETS["table-ce"], lines=(replace(line, severities=(3,)),))
    planned = plan_preset(preset, "smoke", find_checkpoints([path]))
    keys = {request.method: request.key for request in planned.plan.requests}
    assert keys["conjugate"] == keys["entropy"] != keys["hard"]


def test_with_binary_cross_entropy_the_softmax_entropy_is_another_run(
    save_checkpoint: SaveCheckpoint, cache: Path
) -> None:
    path = save_checkpoint("cifar10", "binary-cross-entropy", architecture="digit_network")
    planned = plan_preset(PRESETS["table-bce"], "smoke", find_checkpoints([path]))
    asked = {request.method: request.key for request in planned.lines[0].plan.requests}
    assert asked["conjugate"] == asked["soft"] != asked["entropy:activation=softmax"]
    cells = {job.cell.key: job.cell for job in planned.plan.jobs}
    assert cells[asked["entropy:activation=softmax"]].options == {"activation": "softmax"}


@pytest.fixture
def ran(save_checkpoint: SaveCheckpoint, cache: Path) -> tuple[PresetPlan, dict[str, Record]]:
    """The task-loss figure on one of its fifteen shifts."""
    path = save_checkpoint("cifar10", "poly:epsilon=6", architecture="digit_network")
    planned = plan_preset(PRESETS["fig-task-loss"], "smoke", find_checkpoints([path]))
    records = [run_job(job) for job in planned.plan.jobs]
    return planned, {record.key: record for record in records}


def test_what_is_here_is_run_with_the_published_settings(
    ran: tuple[PresetPlan, dict[str, Record]],
) -> None:
    planned, records = ran
    (line,) = planned.lines
    assert (line.shifts, line.shifts_wanted) == (1, 15)
    assert {record.status for record in records.values()} == {"done"}
    by_method = {record.cell.method: record.cell for record in records.values()}
    assert set(by_method) == set(line.line.runs)
    assert by_method["memo"].learning_rate == 5e-3
    assert by_method["conjugate"].optimizer == "sgd"
    assert all(cell.batch_size == 50 for cell in by_method.values())


def test_comparisons_are_the_records_and_say_that_they_are_partial(
    ran: tuple[PresetPlan, dict[str, Record]],
) -> None:
    planned, records = ran
    rows = compare(planned, records)
    by_method = {record.cell.method: record for record in records.values()}
    for row in rows:
        assert row.errors == (by_method[row.method].error_percent,)
        assert row.is_partial
    entries = {row[1].text: row for row in comparison_table(rows, "").rows}
    mine = by_method["conjugate"].error_percent
    assert entries["conjugate"][3].text == f"{mine:.2f}*"
    assert entries["conjugate"][4].text == "13.02 ± 0.09"
    assert entries["conjugate"][5].text == f"{mine - 13.02:+.2f}"
    assert comparison_csv(rows, differences(rows)).count("\n") == len(rows) + 1
    assert list(severity_figures(rows)) == ["cifar10-c"]


def test_every_method_is_paired_with_the_conjugate(
    ran: tuple[PresetPlan, dict[str, Record]],
) -> None:
    planned, records = ran
    rows = compare(planned, records)
    by_method = {row.method: row for row in rows}
    found = differences(rows)
    title = planned.lines[0].line.title
    assert {method for _, method in found} == set(by_method) - {"conjugate"}
    for method in ("source", "entropy"):
        mine, reference = by_method[method], by_method["conjugate"]
        pair = found[title, method]
        assert pair.images == compare_records(mine.records, reference.records, limited=True)
        assert pair.images.estimate == pytest.approx(mine.errors[0] - reference.errors[0])
        assert pair.streams == over_streams(mine.records, reference.records)
        assert pair.images.p_value <= pair.corrected <= 1
    lines = shifts_csv(rows).splitlines()
    assert len(lines) == 1 + 2 * len(rows)  # one shift and the mean over shifts
    assert comparison_table(rows, "", found).rows[0][6].text == found[title, "source"].interval
    (source,) = (
        row
        for row in csv.DictReader(comparison_csv(rows, found).splitlines())
        if row["method"] == "source"
    )
    assert float(source["p_holm"]) == found[title, "source"].corrected
    assert (source["streams"], source["streams_low"]) == ("1", "")  # one stream has no interval


def test_a_run_of_the_conjugates_own_under_another_name_is_not_corrected_for(
    ran: tuple[PresetPlan, dict[str, Record]],
) -> None:
    planned, records = ran
    rows = compare(planned, records)
    by_method = {row.method: row for row in rows}
    same = replace(by_method["conjugate"], method="entropy")
    few = differences([by_method["source"], by_method["conjugate"]])
    title = planned.lines[0].line.title
    more = differences([by_method["source"], same, by_method["conjugate"]])
    assert more[title, "source"].corrected == few[title, "source"].corrected
    assert more[title, "entropy"].corrected == 1


def test_task_loss_curves_have_a_point_a_batch(ran: tuple[PresetPlan, dict[str, Record]]) -> None:
    planned, records = ran
    curves = task_loss_curves(planned.lines[0], records)
    assert set(curves) == set(planned.lines[0].line.runs)
    by_method = {record.cell.method: record for record in records.values()}
    for method, (curve,) in curves.items():
        assert curve == pytest.approx(list(by_method[method].batch_task_losses))


def test_a_failed_cell_leaves_a_gap_that_is_told(ran: tuple[PresetPlan, dict[str, Record]]) -> None:
    planned, records = ran
    broken = {
        key: Record(cell=record.cell, status="failed", error="x")
        for key, record in records.items()
        if record.cell.method == "hard"
    }
    rows = {row.method: row for row in compare(planned, {**records, **broken})}
    assert (rows["hard"].errors, rows["hard"].failed) == ((), 1)
    entries = {row[1].text: row for row in comparison_table(list(rows.values()), "").rows}
    assert entries["hard"][3].text == "failed"


def write_settings(checkpoint: Path, kind: str, methods: Iterable[str], **settings: object) -> None:
    """The file that `fenchel tune` leaves, with the same settings for every method."""
    metadata = find_checkpoints([checkpoint])[0].metadata
    choices = tuple(
        Choice(
            architecture=metadata.architecture,
            loss=metadata.loss,
            method=method,
            settings=settings,
            validation_error=1.0,
            trials=2,
        )
        for method in methods
    )
    tuned = Tuned(choices=choices, protocol={"corruptions": ["spatter"]})
    tuned.write(checkpoint.with_suffix(f".{kind}.json"))


def test_at_scale_cpu_settings_tuned_for_the_source_replace_the_published_ones(
    save_checkpoint: SaveCheckpoint, cache: Path
) -> None:
    path = save_checkpoint("cifar10", "poly:epsilon=6", architecture="digit_network")
    adapting = [
        name
        for name in line_of("fig-task-loss", "CIFAR-10-C, T = 1").runs
        if name not in ("source", "bn")
    ]
    write_settings(path, "t1", adapting, learning_rate=0.25, temperature=1.0, optimizer="adam")
    found = find_checkpoints([path])
    preset = PRESETS["fig-task-loss"]
    (tuned,) = plan_preset(preset, "cpu", found).lines
    assert {str(run) for name, run in tuned.line.runs.items() if name in adapting} == {
        "adam 0.25, T 1"
    }
    assert tuned.line.runs["conjugate"].error == 13.02
    cells = [job.cell for job in tuned.plan.jobs]
    assert {cell.learning_rate for cell in cells if cell.method in adapting} == {0.25}
    assert {name.selection for name in tuned.plan.requests} == {"tuned on spatter"}
    (published,) = plan_preset(preset, "smoke", found).lines
    assert published.line.runs["conjugate"].learning_rate == 1e-3


def test_digits_are_adapted_with_settings_tuned_at_the_temperature_of_their_line(
    save_checkpoint: SaveCheckpoint, cache: Path
) -> None:
    path = save_checkpoint("svhn:digits=True", "cross-entropy", architecture="digit_network")
    methods = ("hard", "robust", "memo", "conjugate")
    for kind, temperature in (("t1", 1.0), ("t2", 2.0)):
        settings = {"learning_rate": temperature / 8, "temperature": temperature}
        write_settings(path, kind, methods, optimizer="adam", **settings)
    lines = plan_preset(PRESETS["table-ce-digits"], "cpu", find_checkpoints([path])).lines
    assert {
        (found.line.title[-5:], str(found.line.runs[name])) for found in lines for name in methods
    } == {("T = 1", "adam 0.125, T 1"), ("T = 2", "adam 0.25, T 2")}
