"""`fenchel reproduce fig-meta`: meta-learned objectives, fitted, scored and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fenchel.cli.console import err, out
from fenchel.cli.reproduce_output import missing_lines, note, save_figure, tell
from fenchel.cli.showing import show_tables

if TYPE_CHECKING:
    from fenchel.bench.presets.available import PresetPlan
    from fenchel.bench.presets.meta_pieces import MetaOutcome


def reproduce_learned(
    planned: PresetPlan, where: Path, *, form: str, workers: int | None, device: str
) -> None:
    """Learn, fit, score and draw for every source that is here with all of its data."""
    from fenchel.bench.presets.meta import LENGTHS
    from fenchel.bench.presets.meta_pieces import pieces_of, run_pieces
    from fenchel.progress import progress

    pieces = pieces_of(planned, where, device)
    note(f"{len(pieces)} pieces: {LENGTHS[planned.scale]}")
    if pieces:
        with progress("pieces", total=len(pieces)) as bar:
            outcome = run_pieces(pieces, workers=workers or 1, done=lambda piece: bar.advance())
        _conclude(planned, outcome, where, form)
    tell(out if form == "terminal" else err, missing_lines(planned))


def _conclude(planned: PresetPlan, outcome: MetaOutcome, where: Path, form: str) -> None:
    """Print tables and verdict; write the rows, the figure and the page."""
    from fenchel.models.files import write_atomically
    from fenchel.report.learned_grid import learned_grid_figure
    from fenchel.report.learned_numbers import error_table, fit_table, learned_csv
    from fenchel.report.learned_page import write_learned_page
    from fenchel.report.learned_summary import errors_csv, fits_csv
    from fenchel.report.learned_verdict import learned_verdict

    preset, numbers = planned.preset, learned_csv(outcome)
    tables = [error_table(outcome, preset.lines), fit_table(outcome)]
    verdict = learned_verdict(outcome)
    show_tables(tables, form, numbers)
    notes = [f"note: {text}" for text in preset.notes]
    tell(out if form == "terminal" else err, [*verdict, *notes])
    for suffix, text in {
        "": numbers,
        "-errors": errors_csv(outcome, preset.lines),
        "-fits": fits_csv(outcome),
    }.items():
        write_atomically(where / f"{preset.name}{suffix}.csv", text.encode())
    figure = learned_grid_figure(outcome.learned)
    save_figure(figure, where / preset.name)
    write_learned_page(
        where / "report.html",
        tables=tables,
        figure=figure,
        verdict=verdict,
        protocol=_protocol(planned, outcome),
        notes=preset.notes,
    )
    note(f"results: {where}")


def _protocol(planned: PresetPlan, outcome: MetaOutcome) -> dict[str, str]:
    from fenchel.bench.presets.meta import LENGTHS

    scale = planned.lines[0].scale
    first = outcome.learned[0]
    learned = first.objective.protocol
    split = learned["target"]["split"]
    return {
        "scale": f"{planned.scale}: {scale}",
        "learning": f"{LENGTHS[planned.scale]}, on {split['learn']['images']} images under "
        f"{', '.join(learned['target']['corruptions'])}",
        "scoring": f"online on {split['score']['images']} other images a corruption, reset for each, "
        "prediction after the update",
        "fits": f"to {first.fits.samples} logits of the source on the images learned on",
        "sources": "; ".join(
            dict.fromkeys(
                f"{entry.source}: {entry.objective.protocol['source']['architecture']} "
                f"{entry.objective.protocol['source']['digest'][:12]}"
                for entry in outcome.learned
            )
        ),
    }
