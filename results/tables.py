"""The tables of the pages, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from reading import (
    Row,
    interval,
    lines_with_results,
    number,
    over_streams,
    rows_of,
    trial,
    with_spread,
)

from fenchel.bench.tuned import read_tuned
from fenchel.methods import moves_parameters
from fenchel.models import zoo
from fenchel.report.layout import Layout, TableEntry, to_markdown

TUNED = {
    "poly": "PolyLoss source",
    "ce": "Cross-entropy source",
    "squared": "Squared-loss source",
    "bce": "Binary-cross-entropy source",
}


def table(name: str, titles: Sequence[str] | None = None) -> str:
    """Methods by line: ours, the paper's, and the paired difference to the conjugate."""
    titles = titles or lines_with_results(name)
    lines = [_Line(name, title) for title in titles]
    headings = ["method"]
    for title in titles:
        headings += [f"{title}: ours", "paper", "minus conjugate [95 %]"]
    rows = [
        [TableEntry(method), *(entry for line in lines for entry in line.all_of(method))]
        for method in _methods(lines)
    ]
    return markdown(headings, rows)


def certainty(name: str, titles: Sequence[str] | None = None) -> str:
    """Methods by line: the difference to the conjugate over streams, and the p-value by Holm."""
    titles = titles or lines_with_results(name)
    lines = [_Line(name, title) for title in titles]
    headings = ["minus conjugate"]
    for title in titles:
        headings += [f"{title}: over streams [95 %]", "p, Holm"]
    rows = [
        [TableEntry(method), *(entry for line in lines for entry in line.certainty(method))]
        for method in _methods(lines)
        if method != "conjugate"
    ]
    return markdown(headings, rows)


def by_corruption(name: str, titles: Sequence[str]) -> str:
    """Corruptions by method, our errors on lines of a table; the lowest in bold."""
    errors: dict[str, dict[str, float]] = {}
    for title in titles:
        ending = title.rpartition(", ")[2]
        for row in rows_of(f"{name}-shifts"):
            if row["line"] == title and row["ours"]:
                column = (
                    f"{row['method']}, {ending}"
                    if moves_parameters(row["method"])
                    else row["method"]
                )
                errors.setdefault(row["shift"], {})[column] = float(row["ours"])
    columns = list(dict.fromkeys(column for found in errors.values() for column in found))
    rows = []
    for shift, found in errors.items():
        numbers = [found[column] for column in columns]
        shown = _lowest_in_bold([f"{value:.1f}" for value in numbers], numbers)
        rows.append([TableEntry(shift.replace("_", " ")), *shown])
    return markdown(["corruption", *columns], rows)


def by_severity(data: str) -> str:
    """Methods by severity, our errors; then their paired differences to the conjugate."""
    titles = lines_with_results("table-severity", data)
    lines = [_Line("table-severity", title) for title in titles]
    headings = [title.partition(",")[0].removeprefix(f"{data} ") for title in titles]
    methods = _methods(lines)
    errors = [[TableEntry(m), *(line.ours(m) for line in lines)] for m in methods]
    differences = [
        [TableEntry(m), *(line.difference(m) for line in lines)]
        for m in methods
        if m != "conjugate"
    ]
    return "\n".join(
        (
            markdown(["error (%)", *headings], errors),
            markdown(["minus conjugate [95 %]", *headings], differences),
        )
    )


def streams(source: str) -> str:
    """Methods by kind of stream for one source: our errors, and what another objective inside changes."""
    titles = [t for t in lines_with_results("streams") if t.startswith(f"{source}, ")]
    lines = [_Line("streams", title) for title in titles]
    headings = [title.removeprefix(f"{source}, ") for title in titles]
    methods = _methods(lines)
    errors = [[TableEntry(m), *(line.ours(m) for line in lines)] for m in methods]
    others = [
        [TableEntry(m), *(line.difference(m) for line in lines)]
        for m in methods
        if m == "entropy" or "objective=" in m
    ]
    tables = [markdown(["error (%)", *headings], errors)]
    if others:
        tables.append(markdown(["minus the conjugate inside [95 %]", *headings], others))
    return "\n".join(tables)


class _Line:
    """One line of a table, by method."""

    def __init__(self, name: str, title: str) -> None:
        self.rows = {row["method"]: row for row in rows_of(name) if row["line"] == title}
        self.lowest = min(float(row["ours"]) for row in self.rows.values() if row["ours"])

    def all_of(self, method: str) -> tuple[TableEntry, TableEntry, TableEntry]:
        """Ours, the paper's, the difference."""
        row = self._row(method)
        paper = TableEntry("-") if row is None else TableEntry(with_spread(row, "paper"))
        return self.ours(method), paper, self.difference(method)

    def ours(self, method: str) -> TableEntry:
        row = self._row(method)
        if row is None:
            return TableEntry("-")
        return TableEntry(
            with_spread(row, "ours"), "best" if float(row["ours"]) == self.lowest else ""
        )

    def difference(self, method: str) -> TableEntry:
        row = self._row(method)
        return TableEntry("") if row is None else TableEntry(interval(row))

    def certainty(self, method: str) -> tuple[TableEntry, TableEntry]:
        """The interval over streams, and Holm's p-value."""
        row = self._row(method)
        if row is None or not row["p_holm"]:
            return TableEntry("-"), TableEntry("-")
        return TableEntry(over_streams(row)), TableEntry(f"{float(row['p_holm']):.3f}")

    def _row(self, method: str) -> Row | None:
        row = self.rows.get(method)
        return row if row is not None and row["ours"] else None


def _methods(lines: Sequence[_Line]) -> list[str]:
    return list(dict.fromkeys(method for line in lines for method in line.rows))


def markdown(headings: Sequence[str], rows: Sequence[Sequence[TableEntry]], names: int = 1) -> str:
    """A table without a caption; the first `names` columns are no numbers."""
    layout = Layout("", tuple(headings), tuple(map(tuple, rows)), names)
    return to_markdown(layout).rstrip() + "\n"


def sources() -> str:
    """The networks of the zoo as a table."""
    rows = tuple(
        (
            TableEntry(f"zoo:{row['name']}"),
            TableEntry(row["loss"]),
            TableEntry(row["epochs"]),
            TableEntry(number(row, "test_accuracy")),
        )
        for row in rows_of("sources")
    )
    return markdown(("network", "training loss", "epochs", "test accuracy (%)"), rows, 2)


def tuned_sources() -> dict[str, str]:
    """The sources for which settings have been chosen, and what they are called."""
    files = {source: zoo.folder() / f"cifar10-resnet26-{source}.t1.json" for source in TUNED}
    return {source: title for source, title in TUNED.items() if files[source].is_file()}


def trials(source: str) -> str:
    """The rates on the longer streams, at temperature 1 and at the best one; what was chosen in bold."""
    chosen = read_tuned(zoo.folder() / f"cifar10-resnet26-{source}.tuned.json")
    grid, short = chosen.protocol["grid"], chosen.protocol["screening_limit"]
    rates, (long,) = grid["learning_rate"], chosen.protocol["limit"]
    headings = ["method", *(f"T = 1: {rate:g}" for rate in rates)]
    headings += [f"best T: {rate:g}" for rate in rates]
    rows = []
    for choice in chosen.choices:
        method = choice.method
        best = [_best(grid["temperature"], source, method, rate, short) for rate in rates]
        plain = [trial(source, method, rate, 1, long) for rate in rates]
        tuned = [trial(source, method, *setting, long) for setting in zip(rates, best, strict=True)]
        texts = [f"{error:.2f} ({t:g})" for error, t in zip(tuned, best, strict=True)]
        at_one = _lowest_in_bold([f"{error:.2f}" for error in plain], plain)
        rows.append((TableEntry(method), *at_one, *_lowest_in_bold(texts, tuned)))
    return markdown(headings, rows)


def rates(name: str, kind: str = "t1") -> str:
    """The rates tried for a network of the zoo at one temperature; what was chosen in bold."""
    chosen = read_tuned(zoo.folder() / f"{name}.{kind}.json")
    grid, (images,) = chosen.protocol["grid"], chosen.protocol["limit"]
    (temperature,), (optimizer,) = grid["temperature"], grid["optimizer"]
    rows = []
    for choice in chosen.choices:
        setting = (name.replace("-resnet26", ""), choice.method)
        errors = [
            trial(*setting, rate, temperature, images, optimizer=optimizer)
            for rate in grid["learning_rate"]
        ]
        texts = [f"{error:.2f}" for error in errors]
        rows.append((TableEntry(choice.method), *_lowest_in_bold(texts, errors)))
    headings = ("method", *(f"{rate:g}" for rate in grid["learning_rate"]))
    return markdown(headings, rows)


def _lowest_in_bold(texts: Sequence[str], errors: Sequence[float]) -> list[TableEntry]:
    lowest = min(errors)
    return [
        TableEntry(text, "best" if error == lowest else "")
        for text, error in zip(texts, errors, strict=True)
    ]


def _best(
    temperatures: Sequence[float], source: str, method: str, rate: float, images: int
) -> float:
    return min(temperatures, key=lambda each: trial(source, method, rate, each, images))


def learned_errors() -> str:
    """Learned objectives and their fits beside the baselines, with the paired difference."""
    rows = rows_of("fig-meta-errors")
    lowest = {
        key: min(float(row["ours"]) for row in rows if (row["source"], row["task_loss"]) == key)
        for key in {(row["source"], row["task_loss"]) for row in rows}
    }
    entries = tuple(
        (
            *(TableEntry(row[key]) for key in ("source", "task_loss", "objective")),
            TableEntry(with_spread(row, "ours"), "best" if float(row["ours"]) == least else ""),
            TableEntry(number(row, "paper")),
            TableEntry(interval(row)),
        )
        for row in rows
        for least in [lowest[row["source"], row["task_loss"]]]
    )
    headings = ("source", "task loss", "objective", "ours", "paper", "minus conjugate [95 %]")
    return markdown(headings, entries, 3)


def learned_fits() -> str:
    """Which formula explains the learned objectives."""
    entries = tuple(
        (
            *(TableEntry(row[key]) for key in ("source", "task_loss")),
            TableEntry(with_spread(row, "r2_entropy", 3)),
            TableEntry(with_spread(row, "r2_quadratic", 3)),
            TableEntry(with_spread(row, "aic_quadratic_minus_entropy", 0)),
            TableEntry(f"{row['entropy_better']} of {row['seeds']}"),
            TableEntry(with_spread(row, "temperature", 1)),
            TableEntry(with_spread(row, "r2_linear", 3)),
            TableEntry(with_spread(row, "beyond_linear_entropy", 3)),
            TableEntry(with_spread(row, "beyond_linear_quadratic", 3)),
        )
        for row in rows_of("fig-meta-fits")
    )
    headings = (
        "source", "task loss", "R² entropy", "R² quadratic", "AIC quadratic - entropy",
        "seeds with entropy better", "fitted T", "R² linear", "beyond it: entropy",
        "beyond it: quadratic",
    )  # fmt: skip
    return markdown(headings, entries, 2)
