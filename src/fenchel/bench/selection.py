"""Choose hyper-parameters on the four validation corruptions, with the same budget for every method.

No label of a test corruption can reach a choice: the sweep that is run holds validation corruptions
alone, jobs on anything else are refused before they run, and so are records of anything else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fenchel.adapters import METHODS
from fenchel.bench.plan import Asked, Plan, make_plan
from fenchel.bench.record import Cell, Record
from fenchel.bench.sweep import DataChoice, MethodChoice, Sweep
from fenchel.bench.tuned import Choice, Tuned
from fenchel.data.corruptions import VALIDATION_CORRUPTIONS


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The budget: every combination is tried for every method. The paper's grid by default."""

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


def select(records: Iterable[Record], asked: Mapping[str, Sequence[Asked]], grid: Grid) -> Tuned:
    """The best settings of each method for each kind of source, by the mean error over all else.

    Ties go to what the grid lists first. A setting of which a cell failed is not chosen.
    """
    errors: dict[tuple[str, str, str], dict[tuple[Any, ...], list[float]]] = defaultdict(dict)
    cells: list[Cell] = []
    for record in records:
        refuse_test_data(record.cell)
        cells.append(record.cell)
        error = record.error_percent if record.status == "done" else math.inf
        for name in asked.get(record.key, ()):
            kind = (record.cell.architecture, record.cell.loss, name.method)
            setting = tuple(getattr(record.cell, field) for field in TUNED_SETTINGS)
            errors[kind].setdefault(setting, []).append(error)
    if not cells:
        raise ValueError("nothing to choose from: the tuning has no records. Run it first.")
    choices = [_best(kind, trials, grid) for kind, trials in sorted(errors.items())]
    return Tuned(choices=tuple(choices), protocol=_protocol(cells, grid))


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
            f"{choice.name} is a shift of its own. Take temperature 1 and a fixed learning rate."
        )
    return replace(choice, corruptions=VALIDATION_CORRUPTIONS)


def _tuned_methods(methods: Sequence[MethodChoice], grid: Grid) -> list[MethodChoice]:
    """Every method that moves parameters, once, with the same grid."""
    chosen: dict[str, MethodChoice] = {}
    for choice in methods:
        if METHODS[choice.name].build is METHODS["source"].build:
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


def _best(
    kind: tuple[str, str, str], trials: Mapping[tuple[Any, ...], list[float]], grid: Grid
) -> Choice:
    architecture, loss, method = kind
    order = [list(values) for values in grid.settings().values()]

    def rank(setting: tuple[Any, ...]) -> tuple[float, ...]:
        mean = sum(trials[setting]) / len(trials[setting])
        places = (values.index(value) for values, value in zip(order, setting, strict=True))
        return (mean, *places)

    best = min(trials, key=rank)
    error = rank(best)[0]
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
        trials=len(trials),
    )


def _protocol(cells: Sequence[Cell], grid: Grid) -> dict[str, Any]:
    """What the choices rest on."""
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
