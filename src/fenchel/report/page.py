"""`fenchel report`: a results store as one self-contained page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from fenchel.bench.record import Record
from fenchel.files import write_atomically
from fenchel.report.curves import online_error_figure, task_loss_figure
from fenchel.report.errors import error_by_corruption_figure, error_by_severity_figure
from fenchel.report.heatmap import heat_map_figure
from fenchel.report.html import drawn, render
from fenchel.report.layout import Layout, to_latex, to_markdown
from fenchel.report.listings import (
    errors_csv,
    failures_table,
    numbers_table,
    protocol_of,
    significance_csv,
    significance_table,
)
from fenchel.report.results import Results, Section
from fenchel.report.style import FORMATS, palette, save

REFERENCE = "conjugate"
MOST_PANELS = 15
MOST_ROWS_IN_A_FIGURE = 10

Colors = Mapping[str, str]
"""The colour of every row of the page: one in all its figures and tables."""


@dataclass(frozen=True)
class NamedFigure:
    """A figure, the name of its files, and what it shows."""

    name: str
    caption: str
    draw: Callable[..., Figure]
    """Draws it, given `narrow`: whether it is for a page as narrow as a phone."""

    def on_page(self, prefix: str) -> Markup:
        """The figure for a page, with ids that begin with `prefix`."""
        return drawn(lambda narrow: self.draw(narrow=narrow), self.caption, prefix)


def write_report(results: Results, out: str | Path, *, reference: str = REFERENCE) -> Path:
    """Write the page to `out`, whole or not at all."""
    colors = colors_of(results)
    parts = [
        _section_values(section, number, reference, colors)
        for number, section in enumerate(results.sections)
    ]
    text = render(
        "report.html",
        script="sort.js",
        results=results,
        sections=parts,
        colors=colors,
        numbers=numbers_table(results),
        failures=failures_table(results),
        tracebacks=[(record, record.traceback) for record in results.failures],
    )
    write_atomically(out, text.encode())
    return Path(out)


def write_figures(
    results: Results, folder: str | Path, *, reference: str = REFERENCE
) -> list[Path]:
    """Every figure as PNG, SVG and PDF, every table as LaTeX and Markdown, all numbers as CSV."""
    written = []
    colors = colors_of(results)
    for number, section in enumerate(results.sections, start=1):
        for item in figures_of(section, colors):
            figure = item.draw()
            for suffix in FORMATS:
                written.append(Path(folder) / f"{number}-{item.name}.{suffix}")
                save(figure, written[-1])
        for name, layout in tables_of(section, reference).items():
            for suffix, text in (("tex", to_latex(layout)), ("md", to_markdown(layout))):
                written.append(Path(folder) / f"{number}-{name}.{suffix}")
                write_atomically(written[-1], text.encode())
    for name, text in (
        ("errors", errors_csv(results)),
        ("tests", significance_csv(results, reference)),
    ):
        written.append(Path(folder) / f"{name}.csv")
        write_atomically(written[-1], text.encode())
    return written


def tables_of(section: Section, reference: str) -> dict[str, Layout]:
    """The errors, and their differences to the reference where there are any."""
    found = {"errors": section.table().layout(caption_of(section))}
    tested = significance_table(section, reference)
    return found if tested is None else {**found, "tests": tested}


def colors_of(results: Results) -> dict[str, str]:
    """A colour for every row, the same in all sections."""
    return palette(label for section in results.sections for label in section.configurations)


def figures_of(section: Section, colors: Colors) -> list[NamedFigure]:
    """The figures that the records of a section allow."""
    made = []
    labels = list(section.configurations)
    if len(labels) <= MOST_ROWS_IN_A_FIGURE:
        table = section.corruption_table()
        if len(table.columns) > 1:
            caption = "Error by shift: mean and standard deviation over seeds."
            draw = partial(error_by_corruption_figure, table, colors=colors)
            made.append(NamedFigure("corruptions", caption, draw))
        if len(section.severities) > 1:
            draw = partial(error_by_severity_figure, section.by_severity(), labels, colors=colors)
            made.append(NamedFigure("severities", "Error against severity.", draw))
        made += _curve_figures(section, colors)
    if grids := section.heat_maps():
        caption = "Mean error by learning rate and temperature; the lowest of each panel is framed."
        made.append(NamedFigure("grid", caption, partial(heat_map_figure, grids)))
    return made


def _curve_figures(section: Section, colors: Colors) -> list[NamedFigure]:
    kinds: tuple[
        tuple[str, str, Callable[[Record], Sequence[float]], Callable[..., Figure]], ...
    ] = (
        (
            "online-error",
            "Error over the stream so far.",
            lambda record: record.online_error_curve,
            online_error_figure,
        ),
        (
            "task-loss",
            "Training loss at the true labels, which the adaptation never sees.",
            lambda record: record.batch_task_losses,
            task_loss_figure,
        ),
    )
    made = []
    labels = [
        label
        for label, configuration in section.configurations.items()
        if configuration.method != "source"
    ]
    hidden = (
        ""
        if len(labels) == len(section.configurations)
        else " The source is left out: its scale is another."
    )
    for name, caption, curve_of, figure_of in kinds:
        curves = {key: runs for key, runs in section.curves(curve_of).items() if key[0] in labels}
        caption += hidden
        streams = list(dict.fromkeys(stream for _, stream in curves))
        if curves and max(len(runs[0]) for runs in curves.values()) > 1:
            shown = streams[:MOST_PANELS]
            if len(shown) < len(streams):
                caption += f" The first {MOST_PANELS} of {len(streams)} streams."
            draw = partial(figure_of, curves, labels, shown, colors=colors)
            made.append(NamedFigure(name, caption, draw))
    return made


def _section_values(
    section: Section, number: int, reference: str, colors: Colors
) -> dict[str, object]:
    figures = [
        (item.caption, item.on_page(f"s{number}-{k}-"))
        for k, item in enumerate(figures_of(section, colors))
    ]
    return {
        "title": section.title,
        "tables": tables_of(section, reference),
        "protocol": protocol_of(section),
        "figures": figures,
    }


def caption_of(section: Section) -> str:
    """What the table of a section shows."""
    seeds = len({record.cell.seed for record in section.records})
    spread = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    return f"{section.title}: error in %, {spread}, lowest in bold"
