"""What is told about harm: the warning, the report on a batch, and who may listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from fenchel.adapters.guards import AdaptationWarning
from fenchel.adapters.monitor import Verdict

Action = Literal["", "pulled back", "reset", "fell back"]


class HarmWarning(AdaptationWarning):
    """The verdict on a stream has changed. Its facts are attributes as well.

    Attributes:
        verdict: `suspect`, `collapsed`, or `healthy` again.
        reason: why, in a sentence.
        batch: the number of the batch in its stream, from 0.
        action: what was done about it; empty for nothing.

    >>> print(HarmWarning("suspect", "the predictions gather in fewer classes", 7, "pulled back"))
    suspect at batch 7: the predictions gather in fewer classes. The adapter drew its parameters ...
    """

    def __init__(self, verdict: Verdict, reason: str, batch: int, action: Action) -> None:
        self.verdict, self.reason, self.batch, self.action = verdict, reason, batch, action
        super().__init__(verdict, reason, batch, action)  # as pickle gives them back

    def __str__(self) -> str:
        done = f" The adapter {DONE[self.action]}." if self.action else ""
        return f"{self.verdict} at batch {self.batch}: {self.reason}.{done}"


DONE: dict[Action, str] = {
    "pulled back": "drew its parameters back",
    "reset": "went back to the last healthy parameters and predicted the batch without updates",
    "fell back": "returned the source model's prediction",
}


@dataclass(frozen=True)
class Report:
    """What is known of one batch without a label.

    Attributes:
        batch: its number in the stream, from 0.
        signals: by name, as `fenchel adapt --log` writes them; `source_...` and `unmoved_...` where the batch
            was compared, with the `agreement` between adapter and source.
        action: what was done.

    >>> import torch, fenchel
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    >>> reports = []
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy", on_batch=reports.append)
    >>> _ = adapted(torch.randn(32, 4))
    >>> reports[0].batch, reports[0].verdict, "entropy" in reports[0].signals
    (0, 'healthy', True)
    """

    batch: int
    verdict: Verdict
    reason: str
    action: Action
    signals: dict[str, float]


@runtime_checkable
class Detector(Protocol):
    """A detector of drift, as the library river has them."""

    drift_detected: bool

    def update(self, x: float) -> Any:
        """Take in the next value."""


OnBatch = Callable[[Report], Any] | Detector
OnVerdict = Callable[[HarmWarning], Any]
