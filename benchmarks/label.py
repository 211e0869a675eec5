"""The conjugate label and objective: closed form, derived from a function, and the dense solve.

    python benchmarks/label.py [--rounds 5] [--quick] [--json FILE]

The dense way (PolyLoss) builds the C x C matrix Dg(h)^T of every sample and solves for the label within
autograd, as a reader of the definition would write it. The derived way is `fenchel.derive` of the loss as
a user would type it: no C x C matrix is built. Each measurement is over a batch of 200 on one thread
(batched solves fail with two in some builds of torch): CPU time, in interleaved rounds. Fails if one of
the four losses in `BOUNDED` needs more than 20 times the closed form's time for objective and gradient.
"""

from __future__ import annotations

from typing import Any

import torch

from common.labels import BOTH, BOUNDED, LABEL, LABEL_CLASSES, TYPED, VALUE, label_pass
from common.measuring import interleaved
from common.reporting import parser_of, publish

PROTOCOL = (
    "CPU milliseconds for one batch of 200 logits, float32, one thread (medians); ratios "
    "within interleaved rounds, with their range."
)
MOST = 20.0
AT_LEAST = 0.02


def measure(
    loss: str, ways: tuple[str, ...], classes: int, batch: int, rounds: int, what: str
) -> dict[str, Any]:
    """One row: the first of `ways` is what the closed form is compared with."""
    passes = {way: label_pass(loss, way, classes, batch, what) for way in ways}
    values = {way: run() for way, run in passes.items()}
    timings = interleaved(passes, rounds, AT_LEAST)
    other = ways[0]
    return {
        "loss": loss,
        "classes": classes,
        "computed": what,
        f"{other}_milliseconds": 1e3 * timings[other].median,
        "closed_milliseconds": 1e3 * timings["closed"].median,
        f"{other}_over_closed": timings[other].over(timings["closed"]),
        "largest_gap": float((values[other] - values["closed"]).abs().max()),
    }


def main() -> None:
    options = parser_of(__doc__, rounds=5).parse_args()
    torch.set_num_threads(1)
    batch = 4 if options.quick else 200
    dense_counts = (10, 40) if options.quick else (10, 100, 1000)
    derived_counts = (40,) if options.quick else LABEL_CLASSES
    results = []
    for classes in dense_counts:
        rounds = min(options.rounds, 3) if classes >= 1000 else options.rounds
        for what in (VALUE, BOTH):
            results.append(measure("poly", ("dense", "closed"), classes, batch, rounds, what))
    for classes in derived_counts:
        for loss in TYPED:
            for what in (LABEL, BOTH):
                ways = ("derived", "closed")
                results.append(measure(loss, ways, classes, batch, options.rounds, what))
    publish("label", PROTOCOL, results, options)
    slow = [
        row["loss"]
        for row in results
        if row["loss"] in BOUNDED
        and row["computed"] == BOTH
        and row.get("derived_over_closed", (0.0,))[0] > MOST
    ]
    if slow and not options.quick:
        raise SystemExit(f"derived within {MOST:g} times the closed form: not {', '.join(slow)}")


if __name__ == "__main__":
    main()
