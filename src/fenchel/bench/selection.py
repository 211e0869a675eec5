"""Choose hyper-parameters on the four validation corruptions, with the same budget for every method.

No label of a test corruption can reach a choice: the sweep that is run holds validation corruptions
alone, jobs on anything else are refused before they run, and so are records of anything else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fenchel.bench.plan import Plan, Request, make_plan
from fenchel.bench.record import Cell, Record
from fenchel.bench.sweep import DataChoice, MethodChoice, Sweep
from fenchel.bench.tuned import Choice, Tuned
from fenchel.data.corruptions import VALIDATION_CORRUPTIONS
from fenchel.methods import moves_parameters


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The budget: every combination is tried for every method."""

    learning_rate: Sequence[float] = (1e-1, 1e-2, 1e-3, 1e-4)
    temperature: Sequence[float] = (1.0, 2.0, 3.0, 4.0, 5.0)
    optimizer: Sequence[str] = ("sgd", "adam")

    def settings(self) -> dict[str, Sequence[Any]]:
        """The grid as a method of a sweep takes it."""
        return {name: tuple(getattr(self, name)) for name in TUNED_SETTINGS}

    @property
    def trials(self) -> int:
        """The number of combinations."""
        return math.prod(len(values) for values in self.settings().values())


TUNED_SETTINGS = ("learning_rate", "temperature", "optimizer")

Kind = tuple[str, str, str]
"""The architecture and training loss of a source model, and a method."""
Setting = tuple[Any, ...]
"""A value for each of `TUNED_SETTINGS`."""
Errors = dict[Setting, list[float]]


def tuning_plan(sweep: Sweep, grid: Grid, *, limit: int | None = None, device: str = "cpu") -> Plan:
    """The plan that tries the grid for every method of `sweep`, on the validation corruptions.

    Whatever corruptions the sweep names are replaced; its severities, protocol and seeds stay.
    """
    tuning = replace(
        sweep,
        data=[_on_validation(choice) for choice in sweep.data],
        methods=_tuned_methods(sweep.methods, grid),
    )
    plan = make_plan(tuning, limit=limit, device=device)
    for job in plan.jobs:
        refuse_test_data(job.cell)
    return plan


def final_plan(
    longer: Plan, records: Iterable[Record], asked: Mapping[str, Sequence[Request]], grid: Grid
) -> Plan:
    """The trials of `longer` that did best at their learning rate in the records of a shorter tuning.

    What a rate does to a stream shows late: a short one favours rates that break down in a long one.
    """
    trials, _ = _trials(records, asked)
    finalists = {
        (kind, setting)
        for kind, errors in trials.items()
        for setting in _best_of_each_rate(errors, grid)
    }
    return _part(longer, finalists)


def one_of_each_rate(longer: Plan) -> Plan:
    """As many trials of `longer` as a `final_plan` will have, for an estimate before anything was run."""
    cells = {job.cell.key: job.cell for job in longer.jobs}
    first: dict[tuple[Kind, float], Setting] = {}
    for name in longer.requests:
        kind, setting = _kind(cells[name.key], name), _setting(cells[name.key])
        first.setdefault((kind, setting[0]), setting)
    return _part(longer, {(kind, setting) for (kind, _), setting in first.items()})


def _part(plan: Plan, wanted: Collection[tuple[Kind, Setting]]) -> Plan:
    """The wanted trials of a plan."""
    cells = {job.cell.key: job.cell for job in plan.jobs}
    names = [
        name
        for name in plan.requests
        if (_kind(cells[name.key], name), _setting(cells[name.key])) in wanted
    ]
    keys = {name.key for name in names}
    return Plan(tuple(job for job in plan.jobs if job.cell.key in keys), tuple(names))


def select(
    records: Iterable[Record],
    asked: Mapping[str, Sequence[Request]],
    grid: Grid,
    *,
    screened_on: int | None = None,
) -> Tuned:
    """The best settings of each method for each kind of source, by the mean error over all else.

    Ties go to what the grid lists first. A setting of which a cell failed is not chosen. `screened_on`
    is the number of images per shift on which the trials of a `final_plan` were picked.
    """
    trials, cells = _trials(records, asked)
    if not cells:
        raise ValueError("nothing to choose from: the tuning has no records. Run it first.")
    choices = [_best(kind, errors, grid) for kind, errors in sorted(trials.items())]
    screening = {} if screened_on is None else {"screening_limit": screened_on}
    return Tuned(choices=tuple(choices), protocol=_protocol(cells, grid) | screening)


def refuse_test_data(cell: Cell) -> None:
    """Raise ValueError unless every shift of a cell is a validation corruption."""
    for shift in cell.shifts:
        if shift.severity is None or shift.name not in VALIDATION_CORRUPTIONS:
            raise ValueError(
                "hyper-parameters are chosen on the validation corruptions alone "
                f"({', '.join(VALIDATION_CORRUPTIONS)}); got {shift.dataset}, {shift.title}. Without such "
                "data, take temperature 1 and a fixed learning rate."
            )


def _on_validation(choice: DataChoice) -> DataChoice:
    if not choice.corruption_names:
        raise ValueError(
            "tuning needs data with corruptions, of which four are for validation; "
            f"{choice.name} is a shift of its own. Take temperature 1 and a fixed learning rate, or tune on "
            "the source's own data with corruptions = 'validation'."
        )
    return replace(choice, corruptions=VALIDATION_CORRUPTIONS)


def _tuned_methods(methods: Sequence[MethodChoice], grid: Grid) -> list[MethodChoice]:
    """Every method that moves parameters, once, with the same grid."""
    chosen: dict[str, MethodChoice] = {}
    for choice in methods:
        if not moves_parameters(choice.method):
            continue  # nothing to tune
        fixed = {name: values for name, values in choice.grid.items() if name not in TUNED_SETTINGS}
        for name, values in fixed.items():
            if len(values) > 1:
                raise ValueError(
                    f"tuning tries {', '.join(TUNED_SETTINGS)}; {name} of {choice.name} has "
                    f"{len(values)} values. Give it one, or every method would not get the same budget."
                )
        chosen.setdefault(choice.name, replace(choice, grid=fixed | grid.settings(), tuned=None))
    if not chosen:
        raise ValueError(
            "tuning needs a method that adapts; the sweep has none, such as conjugate."
        )
    return list(chosen.values())


def _trials(
    records: Iterable[Record], asked: Mapping[str, Sequence[Request]]
) -> tuple[dict[Kind, Errors], list[Cell]]:
    """The errors of every setting, by kind, and the cells they come from."""
    trials: dict[Kind, Errors] = defaultdict(dict)
    cells: list[Cell] = []
    for record in records:
        refuse_test_data(record.cell)
        cells.append(record.cell)
        error = record.error_percent if record.status == "done" else math.inf
        for name in asked.get(record.key, ()):
            errors = trials[_kind(record.cell, name)]
            errors.setdefault(_setting(record.cell), []).append(error)
    return trials, cells


def _kind(cell: Cell, name: Request) -> Kind:
    return cell.architecture, cell.loss, name.method


def _setting(cell: Cell) -> Setting:
    return tuple(getattr(cell, field) for field in TUNED_SETTINGS)


def _ranks(errors: Errors, grid: Grid) -> dict[Setting, tuple[float, ...]]:
    """The mean error of every setting, and its place in the grid to break ties."""
    order = [list(values) for values in grid.settings().values()]
    return {
        setting: (
            round(sum(found) / len(found), 6),  # or the order of summation would break ties
            *(values.index(value) for values, value in zip(order, setting, strict=True)),
        )
        for setting, found in errors.items()
    }


def _best_of_each_rate(errors: Errors, grid: Grid) -> list[Setting]:
    ranks = _ranks(errors, grid)
    rates = dict.fromkeys(setting[0] for setting in ranks)
    return [min((s for s in ranks if s[0] == rate), key=ranks.__getitem__) for rate in rates]


def _best(kind: Kind, errors: Errors, grid: Grid) -> Choice:
    architecture, loss, method = kind
    ranks = _ranks(errors, grid)
    best = min(ranks, key=ranks.__getitem__)
    error = ranks[best][0]
    if math.isinf(error):
        raise ValueError(
            f"no setting of {method} ({architecture}, {loss}) ran through; every one has a failed cell. "
            "See 'fenchel bench status' on the tuning's store."
        )
    return Choice(
        architecture=architecture,
        loss=loss,
        method=method,
        settings=dict(zip(TUNED_SETTINGS, best, strict=True)),
        validation_error=round(error, 6),
        trials=len(errors),
    )


def _protocol(cells: Sequence[Cell], grid: Grid) -> dict[str, Any]:
    """The protocol behind the choices."""
    shifts = [shift for cell in cells for shift in cell.shifts]
    present = {shift.name for shift in shifts}
    return {
        "corruptions": [name for name in VALIDATION_CORRUPTIONS if name in present],
        "severities": sorted({shift.severity for shift in shifts}),
        "data": sorted({cell.data for cell in cells}),
        "limit": sorted({cell.limit for cell in cells}, key=str),
        "batch_size": sorted({cell.batch_size for cell in cells}),
        "setting": sorted({cell.setting for cell in cells}),
        "seeds": sorted({cell.seed for cell in cells}),
        "checkpoints": sorted({cell.model_digest for cell in cells}),
        "grid": {name: list(values) for name, values in grid.settings().items()},
        "trials_a_method": grid.trials,
    }
