"""`fenchel reproduce fig-gaussian` and `fig-gaussian-map`: drifting Gaussians, drawn on demand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fenchel.cli.console import csv_rows, err, note, out, show_tables, tell
from fenchel.cli.result_files import save_figure, write_files
from fenchel.progress import progress

if TYPE_CHECKING:
    from pathlib import Path

    from fenchel.paper import Preset

CURVES = "gaussians"
DRAWN = (CURVES, "gaussian-map")
"""The figures for which nothing but random numbers is needed."""


def reproduce_gaussians(
    preset: Preset, scale: str, where: Path, form: str, dry_run: bool
) -> dict[str, Any]:
    """Run one of the two, print its table, write numbers and figure; the same as plain values."""
    from fenchel.paper.gaussian_experiment import gaussian_settings
    from fenchel.paper.gaussian_map import map_settings

    settings = gaussian_settings(scale) if preset.figure == CURVES else map_settings(scale)
    note(f"{preset.name}: {preset.about}")
    note(f"{settings}")
    facts = {"preset": preset.name, "about": preset.about, "scale": scale}
    facts["settings"] = str(settings)
    if dry_run:
        return facts
    run = _curves if preset.figure == CURVES else _map
    told = run(preset, scale, where, form)
    note(f"figure, numbers and every choice: {where}")
    return {**facts, **told}


def _curves(preset: Preset, scale: str, where: Path, form: str) -> dict[str, Any]:
    from fenchel.paper.gaussian_experiment import gaussian_settings, run_gaussians
    from fenchel.paper.gaussian_figure import (
        PAPER_ON_GAUSSIANS,
        gaussian_csv,
        gaussian_figure,
        gaussian_table,
        gaussian_verdict,
    )

    settings = gaussian_settings(scale)
    total = settings.draws * len(settings.shifts) * len(settings.methods)
    with progress("adapting", total=total) as bar:
        outcome = run_gaussians(settings, bar.advance)
    numbers = gaussian_csv(outcome)
    show_tables([gaussian_table(outcome)], form, numbers)
    verdict = [*gaussian_verdict(outcome), PAPER_ON_GAUSSIANS, *_notes(preset)]
    tell(out if form == "terminal" else err, verdict)
    stem = where / preset.name
    everything = json.dumps(outcome.to_json())
    files = write_files({stem.with_suffix(".json"): everything, stem.with_suffix(".csv"): numbers})
    files += save_figure(gaussian_figure(outcome), stem)
    told = {"rows": csv_rows(numbers), "remarks": verdict, "seconds": round(outcome.seconds, 1)}
    return {**told, "files": [str(file) for file in files]}


def _map(preset: Preset, scale: str, where: Path, form: str) -> dict[str, Any]:
    from fenchel.paper.gaussian_map import map_settings, run_map
    from fenchel.paper.gaussian_map_figure import map_csv, map_figure, map_table, map_verdict

    settings = map_settings(scale)
    with progress("adapting", total=settings.adaptations) as bar:
        points = run_map(settings, bar.advance)
    numbers = map_csv(points)
    show_tables([map_table(points)], form, numbers)
    verdict = [*map_verdict(points), *_notes(preset)]
    tell(out if form == "terminal" else err, verdict)
    stem = where / preset.name
    files = write_files({stem.with_suffix(".csv"): numbers})
    files += save_figure(map_figure(points), stem)
    return {
        "rows": csv_rows(numbers),
        "remarks": verdict,
        "files": [str(file) for file in files],
    }


def _notes(preset: Preset) -> list[str]:
    return [f"note: {text}" for text in preset.notes]
