"""What an adapter tells of a stream: its mode, its counts, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fenchel.adapters.monitor import Verdict

Mode = Literal["adapting", "frozen", "disabled", "unloaded"]


@dataclass(frozen=True)
class Health:
    """Counts of what happened in a stream so far.

    >>> import fenchel, torch
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy")
    >>> for batch in torch.randn(3, 32, 4):
    ...     _ = adapted(batch)
    >>> health = adapted.health()
    >>> health.batches, health.samples, health.updates, health.verdict
    (3, 96, 3, 'healthy')
    """

    batches: int
    samples: int
    updates: int
    skipped_non_finite: int
    """Updates left out because the loss, a gradient or every sample of a batch was not finite."""
    skipped_none_kept: int
    """Updates left out because the objective kept no sample (no confident pseudo-label)."""
    left_out: int
    """Samples that were not finite: predicted by the source model, and used for nothing else."""
    resets: int
    """By you, by the method itself, or by the protection."""
    mode: Mode
    verdict: Verdict = "healthy"
    """`healthy`, `suspect` or `collapsed`; always `healthy` where nothing watches (`protect=False`)."""
    reason: str = "nothing watches this stream: protect=False"
    pulled_back: int = 0
    """How often suspect parameters were drawn halfway back to the source's, or a step undone."""
    fell_back: int = 0
    """Batches for which the source model's prediction was returned."""
    drifts: int = 0
    """How often the detector given as `on_batch` noticed a drift."""
    signals: Mapping[str, float] = field(default_factory=dict)
    """Those of the last batch, without labels; see `Report`."""

    @property
    def skips(self) -> int:
        """All updates that were left out."""
        return self.skipped_non_finite + self.skipped_none_kept
