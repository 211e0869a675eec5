"""`fenchel reproduce fig-meta`: learned objectives, their fits and the figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fenchel.cli.console import csv_rows, err, note, out, show_tables, tell
from fenchel.cli.result_files import save_figure, write_files

if TYPE_CHECKING:
    from fenchel.paper.learned import MetaOutcome
    from fenchel.paper.planning import PresetPlan


def reproduce_learned(
    planned: PresetPlan, where: Path, *, form: str, workers: int | None, device: str
) -> dict[str, Any]:
    """Learn, fit, score and draw for every source that is here with all of its data."""
    from fenchel.paper.learned import LENGTHS, run_tasks, tasks_of
    from fenchel.progress import progress

    tasks = tasks_of(planned, where, device)
    note(f"{len(tasks)} tasks: {LENGTHS[planned.scale]}")
    facts: dict[str, Any] = {"rows": [], "remarks": [], "files": []}
    if tasks:
        with progress("tasks", total=len(tasks)) as bar:
            outcome = run_tasks(tasks, workers=workers or 1, done=lambda task: bar.advance())
        facts = _conclude(planned, outcome, where, form)
    tell(out if form == "terminal" else err, planned.missing_lines())
    return facts


def _conclude(planned: PresetPlan, outcome: MetaOutcome, where: Path, form: str) -> dict[str, Any]:
    """Print tables and verdict; write the rows, the figure and the page."""
    from fenchel.paper.learned_numbers import (
        error_table,
        errors_csv,
        fit_table,
        fits_csv,
        learned_csv,
        learned_verdict,
    )
    from fenchel.paper.learned_page import (
        learned_grid_figure,
        learned_protocol,
        write_learned_page,
    )

    preset, numbers = planned.preset, learned_csv(outcome)
    tables = [error_table(outcome, preset.lines), fit_table(outcome)]
    verdict = learned_verdict(outcome)
    show_tables(tables, form, numbers)
    notes = [f"note: {text}" for text in preset.notes]
    tell(out if form == "terminal" else err, [*verdict, *notes])
    by_objective, fits = errors_csv(outcome, preset.lines), fits_csv(outcome)
    texts = {"": numbers, "-errors": by_objective, "-fits": fits}
    files = write_files(
        {where / f"{preset.name}{suffix}.csv": text for suffix, text in texts.items()}
    )
    files += save_figure(learned_grid_figure(outcome.learned), where / preset.name)
    page = where / "report.html"
    write_learned_page(
        page,
        tables=tables,
        learned=outcome.learned,
        verdict=verdict,
        protocol=learned_protocol(planned, outcome),
        notes=preset.notes,
    )
    note(f"results: {where}")
    return {
        "rows": csv_rows(numbers),
        "errors": csv_rows(by_objective),
        "fits": csv_rows(fits),
        "remarks": [*verdict, *notes],
        "files": [str(file) for file in (*files, page)],
    }
