"""The tables of a report besides the errors: significance, protocol, every number, failures."""

from __future__ import annotations

import dataclasses

from fenchel.bench.record import Cell, Record
from fenchel.report.layout import Layout, TableEntry, to_csv
from fenchel.report.results import Results, Section
from fenchel.report.several import holm

OPEN = "default"
"""A setting that a protected run leaves to `fenchel.adapt`."""


def significance_table(section: Section, reference: str) -> Layout | None:
    """Differences to the reference method; None if there is none, or nothing to compare."""
    label = reference_label(section, reference)
    differences = {} if label is None else section.differences(label)
    if not differences:
        return None
    corrected = holm({name: found.p_value for name, found in differences.items()})
    rows = tuple(
        (
            TableEntry(name),
            TableEntry(found.interval, value=found.estimate),
            TableEntry(f"{found.p_value:.2g}", value=found.p_value),
            TableEntry(f"{corrected[name]:.2g}", value=corrected[name]),
            TableEntry(f"{found.images:,}", value=found.images),
        )
        for name, found in differences.items()
    )
    caption = (
        f"Error minus that of {label}, in points: estimate and 95 % interval of a paired bootstrap over "
        "images (10,000 resamples, two-sided p-value), and the p-value by Holm's correction over the rows."
    )
    if section.cell.metric != "accuracy":
        caption += " By the share of wrong images, not by the mean over classes."
    return Layout(caption, ("method", "difference [95 %]", "p-value", "Holm", "images"), rows)


def reference_label(section: Section, reference: str) -> str | None:
    """The configuration of the reference method that ran most, the first if several did; None if none did."""
    configurations = {
        name: configuration
        for name, configuration in section.configurations.items()
        if configuration.method == reference
    }
    return max(configurations, key=lambda name: len(configurations[name].records), default=None)


def errors_csv(results: Results) -> str:
    """The errors of every section: mean and spread over seeds."""
    rows = [
        (section.title, *numbers)
        for section in results.sections
        for numbers in section.table().numbers()
    ]
    return to_csv(("section", "method", "shift", "mean", "spread", "seeds"), rows)


def significance_csv(results: Results, reference: str) -> str:
    """Differences to the reference method, in points."""
    rows = []
    for section in results.sections:
        if (label := reference_label(section, reference)) is not None:
            differences = section.differences(label)
            corrected = holm({name: found.p_value for name, found in differences.items()})
            rows += [
                (section.title, name, label, *dataclasses.astuple(found), corrected[name])
                for name, found in differences.items()
            ]
    headings = ("section", "method", "reference", "difference", "low", "high", "p_value", "images")
    return to_csv((*headings, "p_holm"), rows)


def protocol_of(section: Section) -> dict[str, str]:
    """The protocol behind the numbers of a section."""
    cell, records = section.cell, section.records
    selections = dict.fromkeys(
        configuration.selection for configuration in section.configurations.values()
    )
    origins = dict.fromkeys(shift.origin for record in records for shift in record.cell.shifts)
    return {
        "data": f"{cell.data}; {'; '.join(filter(None, origins))}",
        "model": f"{cell.architecture}, trained with {cell.loss}, digest {cell.model_digest[:12]}",
        "stream": f"{_setting(cell)}, {cell.order} order, batches of {cell.batch_size}",
        "images": "all" if cell.limit is None else f"a random {cell.limit:,} of each shift",
        "score": cell.metric,
        "prediction": ", ".join(
            sorted({f"{r.cell.predict} the update" if r.cell.predict else OPEN for r in records})
        ),
        "statistics": ", ".join(sorted({str(r.cell.statistics or OPEN) for r in records})),
        "seeds": ", ".join(map(str, sorted({r.cell.seed for r in records}))),
        "hyper-parameters": ", ".join(selections),
        "versions": "; ".join(
            dict.fromkeys(
                ", ".join(f"{name} {value}" for name, value in record.versions.items())
                for record in records
            )
        ),
    }


def _setting(cell: Cell) -> str:
    """`continual`, or `bursts (noise:share=0.2)`."""
    return f"{cell.setting} ({cell.bursts})" if cell.bursts else cell.setting


def numbers_table(results: Results) -> Layout:
    """Every finished cell with all that decides it."""
    headings = (
        "data", "shift", "method", "error %", "optimiser", "rate", "T", "options", "steps", "predict",
        "statistics", "episodic", "loss", "model", "setting", "order", "batch", "seed", "images",
        "seconds", "key",
    )  # fmt: skip
    records = [record for section in results.sections for record in section.records]
    return Layout("", headings, tuple(_number_row(record, results) for record in records), 3)


def _number_row(record: Record, results: Results) -> tuple[TableEntry, ...]:
    cell = record.cell
    given = {**cell.options, **({"protect": cell.protect} if cell.protect else {})}
    options = ", ".join(f"{name}={value}" for name, value in given.items())
    return (
        TableEntry(cell.data),
        TableEntry(cell.shift_title),
        TableEntry(" = ".join(results.requests.get(record.key, (cell.method,)))),
        TableEntry(f"{record.error_percent:.2f}", value=record.error_percent),
        TableEntry(cell.optimizer or "-"),
        _number(cell.learning_rate),
        _number(cell.temperature),
        TableEntry(options or "-"),
        _number(cell.steps),
        TableEntry(cell.predict or OPEN),
        TableEntry(str(cell.statistics or OPEN)),
        TableEntry("yes" if cell.episodic else "no"),
        TableEntry(cell.loss),
        TableEntry(f"{cell.architecture} {cell.model_digest[:8]}"),
        TableEntry(cell.setting),
        TableEntry(cell.order),
        _number(cell.batch_size),
        _number(cell.seed),
        _number(record.samples),
        TableEntry(f"{record.seconds:.1f}", value=record.seconds),
        TableEntry(record.key[:12]),
    )


def _number(value: float | None) -> TableEntry:
    return TableEntry("-") if value is None else TableEntry(f"{value:g}", value=value)


def failures_table(results: Results) -> Layout:
    """Every failed cell and its error."""
    rows = tuple(
        (
            TableEntry(f"{record.cell.data}, {record.cell.shift_title}"),
            TableEntry(" = ".join(results.requests.get(record.key, (record.cell.method,)))),
            TableEntry(record.error),
            _number(record.cell.seed),
            TableEntry(record.key[:12]),
        )
        for record in results.failures
    )
    return Layout("", ("cell", "method", "error", "seed", "key"), rows, 3)
