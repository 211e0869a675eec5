"""What is counted over a run: enough for its summary, however many images there are."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from fenchel.adapters.monitor import Verdict

RARELY = 0.01
"""A difference between two error rates counts if chance alone makes one so large less often than this."""


@dataclass
class Tally:
    """Counts over the images of a run."""

    images: int = 0
    batches: int = 0
    predicted: int = 0
    unreadable: int = 0
    left_out: int = 0
    compared: int = 0
    """Images that the source model predicted too, and `changed` of them got another class."""
    changed: int = 0
    labelled: int = 0
    wrong: int = 0
    both: int = 0
    """Images with a label and the source's prediction; `source_wrong` of them by the source."""
    source_wrong: int = 0
    mended: int = 0
    """Wrong by the source and right by the adapted model; `broken` the other way round."""
    broken: int = 0
    suspect: int = 0
    """Batches with that verdict."""
    collapsed: int = 0
    first_collapse: int | None = None
    """The batch at which predictions were first judged collapsed."""

    @property
    def error(self) -> float | None:
        """Wrong predictions in percent, where labels are known."""
        return 100 * self.wrong / self.labelled if self.labelled else None

    @property
    def source_error(self) -> float | None:
        """The same of the model without adaptation, over the images that it predicted too."""
        return 100 * self.source_wrong / self.both if self.both else None

    @property
    def changed_percent(self) -> float | None:
        """Predictions that adaptation changed, of those that were compared."""
        return 100 * self.changed / self.compared if self.compared else None

    def judge(self, verdict: Verdict, batch: int) -> None:
        """Count the verdict on a batch."""
        if verdict == "suspect":
            self.suspect += 1
        elif verdict == "collapsed":
            self.collapsed += 1
            self.first_collapse = batch if self.first_collapse is None else self.first_collapse

    @property
    def difference_is_real(self) -> bool:
        """Whether as many mended and broken predictions would be rare if both were equally likely.

        McNemar's exact test: under equal chances, the mended ones follow a binomial distribution.
        """
        total, fewer = self.mended + self.broken, min(self.mended, self.broken)
        if total > 1000:  # the normal distribution is as good, and no sum of huge numbers
            return abs(self.mended - self.broken) > 2.576 * math.sqrt(total)
        tail = sum(math.comb(total, k) for k in range(fewer + 1)) * 2 / 2**total
        return total > 0 and tail < RARELY

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)
