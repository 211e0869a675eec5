"""What was found out about a loss given as a function, and how its label is computed."""

from __future__ import annotations

from dataclasses import dataclass

from fenchel.losses.derived.direct import Form
from fenchel.losses.derived.reading import Reading
from fenchel.losses.derived.system import SolverPlan
from fenchel.losses.probability import LogitPenaltyLoss


@dataclass(frozen=True)
class Study:
    """How the label is computed at one number of classes."""

    classes: int
    penalty: LogitPenaltyLoss | None
    """The scalar function, if the loss is one of the true class's probability."""
    form: Form | None
    """The matrix, if it is a diagonal plus a rank of one and there are many classes."""
    plan: SolverPlan | None
    """How the linear system is solved where neither of them helps."""

    @property
    def structure(self) -> str:
        """The kind of loss, in words."""
        if self.penalty is not None:
            return "a function of the true class's probability"
        found = self.form or self.plan
        if found is not None and found.sums_to_one:
            return "a linear system of rank C - 1, solved for labels that sum to one"
        return "a linear system of full rank"

    @property
    def solver(self) -> str:
        """How the label is computed, in words."""
        if self.penalty is not None:
            return "-1/phi'(z), normalised: O(C)"
        if self.plan is None:
            return "diagonal plus rank one, solved directly: O(C)"
        if self.plan.dense:
            return "dense factorisation"
        scaled = {"none": "unscaled", "softmax": "columns scaled", "rows": "rows scaled"}
        return f"matrix-free GMRES, {scaled[self.plan.scaling]}"


@dataclass(frozen=True)
class Findings:
    """What `derive` found out about a function."""

    classes: int
    output: str
    rule: str
    affinity_gap: float
    structure: str
    solver: str

    @classmethod
    def of(cls, reading: Reading, study: Study) -> Findings:
        """The findings of a function at one number of classes."""
        return cls(
            classes=study.classes,
            output=reading.output.value,
            rule=reading.rule.value,
            affinity_gap=reading.affinity_gap,
            structure=study.structure,
            solver=study.solver,
        )

    def __str__(self) -> str:
        return (
            f"output     {self.output}\n"
            f"target     {self.rule} (gap {self.affinity_gap:.1g})\n"
            f"structure  {self.structure}\n"
            f"solver     {self.solver} (at {self.classes} classes)"
        )
