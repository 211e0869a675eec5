"""`fenchel reproduce fig-meta`: the meta-learned objective, learned, fitted, scored and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fenchel.cli.console import err, out
from fenchel.cli.reproduce_output import missing_lines, note, save_figure, tell
from fenchel.cli.showing import show_tables

if TYPE_CHECKING:
    from fenchel.bench.presets.available import PresetPlan
    from fenchel.bench.presets.comparison import Comparison


def reproduce_learned(
    planned: PresetPlan, where: Path, *, form: str, workers: int | None, device: str
) -> None:
    """Learn, fit, score and draw for every source that is here with all of its data."""
    from fenchel.bench.presets.meta import compare_meta, run_meta
    from fenchel.models.files import write_atomically
    from fenchel.report.learned import learned_figure
    from fenchel.report.presets import comparison_csv, comparison_table

    rows: list[Comparison] = []
    for line in planned.lines:
        outcome = None
        if not line.missing:
            loss = line.line.source.loss
            outcome = run_meta(line, where / f"{loss}-{planned.scale}", device)
            title = f"{line.line.title}, best explained by the {outcome.fits.better} fit"
            figure = learned_figure(outcome.learned, outcome.fits, title=title)
            save_figure(figure, where / f"{planned.preset.name}-{loss}")
        rows += compare_meta(line, outcome)
    numbers = comparison_csv(rows)
    caption = f"error in % at scale {planned.scale} beside the paper's; lowest of ours in bold"
    show_tables([comparison_table(rows, caption)], form, numbers)
    remarks = [f"note: {text}" for text in planned.preset.notes]
    tell(out if form == "terminal" else err, [*remarks, *missing_lines(planned)])
    write_atomically(where / f"{planned.preset.name}.csv", numbers.encode())
    note(f"results: {where}")
