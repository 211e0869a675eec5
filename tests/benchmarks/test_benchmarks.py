"""The benchmarks run, write what they promise, and docs/performance.md shows exactly what they wrote."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
COLUMNS = {
    "label": {"loss", "classes", "closed_milliseconds", "largest_gap"},
    "corruptions": {"corruption", "severity 5"},
    "train": {"model", "share_of_bare_speed"},
    "runner": {"cells", "outside_share"},
    "methods": {"method", "forward", "backward", "of_tent", "predicted", "counted"},
    "streams": {"streams", "states", "milliseconds_a_batch", "of_one_session", "state_bytes"},
    "step": {"network", "way", "cpu_seconds", "of_naive_step", "of_bare_with_same_memory"},
    "memory": {"network", "way", "peak_bytes", "stayed_bytes"},
    "meta": {"way", "cpu_seconds", "of_plain_step"},
    "predict": {"way", "seconds", "of_steps_alone"},
    "ranks": {"method", "processes", "milliseconds_a_batch", "of_no_group"},
    "scaling": {"vary", "peak_bytes", "milliseconds_an_image"},
}
PROGRAM = "scaling"
"""The one that is started as a user starts it, and measures in fresh processes as all of them do then."""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def in_this_process(function: Callable[..., Any], *arguments: object) -> Any:
    """What `in_fresh_process` gives, memory aside."""
    return function(*arguments)


def check(path: Path, name: str, columns: set[str]) -> None:
    content = json.loads(path.read_text())
    assert content["benchmark"] == name
    assert content["machine"]
    assert content["protocol"]
    assert content["rounds"] == 1
    assert columns <= set(content["results"][0])


@pytest.mark.usefixtures("scripts")
@pytest.mark.filterwarnings("ignore::fenchel.AdaptationWarning")  # small batches
@pytest.mark.parametrize("name", [name for name in COLUMNS if name != PROGRAM])
def test_quick_benchmark_writes_its_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "numbers.json"
    arguments = ["--quick", "--rounds", "1", "--json", str(path)]
    if name == "corruptions":
        arguments += ["--only", "fog"]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    monkeypatch.setattr(script(name), "in_fresh_process", in_this_process, raising=False)
    script(name).main()
    check(path, name, COLUMNS[name])


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident set from /proc")
def test_a_benchmark_that_is_started_as_a_program_writes_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    command = [sys.executable, f"{PROGRAM}.py", "--quick", "--rounds", "1", "--json", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=BENCHMARKS, check=True, env=environment, capture_output=True)
    check(path, PROGRAM, COLUMNS[PROGRAM])


@pytest.mark.parametrize("name", COLUMNS)
def test_every_benchmark_tells_how_it_is_used(name: str) -> None:
    text = (BENCHMARKS / f"{name}.py").read_text()
    assert f"python benchmarks/{name}.py" in text
    assert "--rounds" in text.partition('"""\n\n')[0]
    assert "--json FILE" in text.partition('"""\n\n')[0]


def some_results() -> dict[str, Any]:
    head = {"machine": "a machine", "protocol": "A protocol.", "rounds": 5}
    rows = [
        {"network": "wide", "way": way, "freed_memory": "returned", "of_naive_step": share}
        for way, share in (("naive step", [1.0, 1.0, 1.0]), ("full step", [0.7, 0.6, 0.8]))
    ]
    memory = [{**row, "of_naive_step": row["of_naive_step"][0]} for row in rows]
    stream = [{"vary": "stream", "batches": 10, "growth_bytes": 2**20}]
    return {
        "step": {**head, "results": rows},
        "memory": {**head, "results": memory},
        "scaling": {**head, "results": stream},
    }


@pytest.mark.usefixtures("scripts")
def test_page_shows_numbers_with_machine_and_protocol() -> None:
    page = script("page")
    empty = (
        "Text.\n<!-- measured: step -->\nold\n<!-- end -->\n<!-- measured: meta -->\n<!-- end -->\n"
    )
    text = page.filled(empty, some_results(), "")
    assert "| full step | returned | 0.70 (0.60-0.80) |" in text
    assert "A protocol. Rounds: 5. a machine." in text
    assert "old" not in text
    assert page.filled(text, some_results(), "") == text
    assert page.filled(text, {}, "").startswith("Text.\n<!-- measured: step -->\n<!-- end -->")


@pytest.mark.usefixtures("scripts")
def test_errors_stand_beside_their_options_once_they_are_measured(tmp_path: Path) -> None:
    page = script("page")
    place = "<!-- measured: less-work -->\n<!-- end -->"
    assert page.errors(tmp_path / "missing.csv") == ""
    table = tmp_path / "less-work.csv"
    table.write_text("option,error,seeds\nlast:1,12.3,3\n")
    assert "| last:1 | 12.3 | 3 |" in page.filled(place, {}, page.errors(table))


@pytest.mark.usefixtures("scripts")
def test_figure_draws_time_memory_and_stream(tmp_path: Path) -> None:
    picture = importlib.import_module("common.picture")
    figure = picture.draw(some_results())
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "CPU time of a step",
        "Peak memory of a step",
        "Memory along a stream",
    ]


@pytest.mark.usefixtures("scripts")
def test_documentation_is_what_the_generator_makes_of_the_results() -> None:
    page = script("page")
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    results = page.read_results(BENCHMARKS / "results")
    assert page.filled(text, results, page.errors(ROOT / "results" / "less-work.csv")) == text
    named = {name for _, name, _ in page.PLACE.findall(text)}
    assert {"step", "memory", "label", "scaling", "figure", "less-work"} <= named
    text = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert page.filled(text, results, "") == text
