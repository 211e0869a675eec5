"""What is written about every image and every batch: predictions beside the source's, and signals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from fenchel.adapters import Health
from fenchel.adapters.monitor import SIGNALS, Predicted, Verdict
from fenchel.predict.classes import Labelled
from fenchel.predict.images import UNKNOWN_LABEL
from fenchel.predict.reading import LEFT_OUT, UNREADABLE, Batch
from fenchel.predict.tally import Tally

NO_SCORES = "the network's scores for it are not finite"


@dataclass(frozen=True)
class Prediction:
    """The probabilities of a batch, (samples, classes) on the host; some may not be finite."""

    probabilities: Tensor
    finite: Tensor
    sums: Predicted | None
    """Over the samples with finite probabilities, if there are any."""

    @staticmethod
    def of(probabilities: Tensor) -> Prediction:
        """From the probabilities of a batch."""
        probabilities = probabilities.detach().float().cpu()
        finite = probabilities.isfinite().all(-1)
        sums = Predicted.of(probabilities[finite]) if bool(finite.any()) else None
        return Prediction(probabilities, finite, sums)


@dataclass(frozen=True)
class Predictions:
    """The predictions of a batch: the adapted ones and, where they were asked for, those beside them."""

    adapted: Prediction | None = None
    source: Prediction | None = None
    unmoved: Prediction | None = None

    def sums(self) -> dict[str, Predicted | None]:
        """The sums of each."""
        return {
            each.name: None if (found := getattr(self, each.name)) is None else found.sums
            for each in fields(self)
        }


def event_of(before: Health, after: Health) -> str:
    """What a batch did to the adapter."""
    if after.resets > before.resets:
        return "reset"
    if after.updates > before.updates:
        return "updated"
    return "skipped" if after.skips > before.skips else "predicted"


def rows_of(
    batch: Batch,
    predictions: Predictions,
    pile: Labelled,
    number: int,
    event: str,
    columns: Collection[str],
) -> list[dict[str, Any]]:
    """One row per image of a batch, in the order of the stream; it has at least these columns."""
    images, names = pile.images, pile.names
    found = _numbers(predictions.adapted, names, columns)
    theirs = _numbers(predictions.source, names)
    rows = []
    place = 0  # among the usable images
    for picture in batch.pictures:
        row: dict[str, Any] = {"image": images.names[picture.index], "batch": number}
        if images.labels is not None and (label := int(images.labels[picture.index])) >= 0:
            row |= {"label": label, "label_name": _name(label, names)}
        if picture.problem:
            rows.append(row | {"event": picture.problem, "reason": picture.reason})
            continue
        row |= {"event": event, **found.get(place, {"event": LEFT_OUT, "reason": NO_SCORES})}
        if place in theirs:
            keys = ("prediction", "name", "confidence")
            row |= {f"source_{key}": theirs[place][key] for key in keys}
        rows.append(row)
        place += 1
    return rows


def _numbers(
    prediction: Prediction | None, names: Sequence[str] | None, columns: Collection[str] = ()
) -> dict[int, dict[str, Any]]:
    """What is said of each sample, by its place in the batch; nothing where its numbers are not finite."""
    if prediction is None:
        return {}
    p = prediction.probabilities
    entropy = torch.special.entr(p.double()).sum(-1).tolist()
    # The class is the first of the largest, as argmax has it everywhere else.
    chosen, surest = p.argmax(-1).tolist(), p.amax(-1).tolist()
    found = {}
    for place, fine in enumerate(prediction.finite.tolist()):
        if fine:
            found[place] = {
                "prediction": chosen[place],
                "name": _name(chosen[place], names),
                "confidence": surest[place],
                "entropy": entropy[place],
                **_ranked(p[place], names, columns),
            }
    return found


def _ranked(p: Tensor, names: Sequence[str] | None, columns: Collection[str]) -> dict[str, Any]:
    """The most probable classes and the probabilities of all, as far as there are columns for them."""
    found: dict[str, Any] = {}
    if "top1" in columns:
        for rank, label in enumerate(p.argsort(descending=True, stable=True).tolist(), start=1):
            if f"top{rank}" not in columns:
                break
            found |= {
                f"top{rank}": label,
                f"top{rank}_name": _name(label, names),
                f"top{rank}_confidence": float(p[label]),
            }
    if "p0" in columns:
        found |= {f"p{label}": value for label, value in enumerate(p.tolist())}
    return found


def _name(label: int, names: Sequence[str] | None) -> str | None:
    return None if names is None or label == UNKNOWN_LABEL else names[label]


def count(tally: Tally, rows: Sequence[dict[str, Any]]) -> None:
    """Let the rows of a batch enter the counts."""
    tally.batches += 1
    for row in rows:
        tally.images += 1
        tally.unreadable += row["event"] == UNREADABLE
        tally.left_out += row["event"] == LEFT_OUT
        if "prediction" not in row:
            continue
        tally.predicted += 1
        label, ours = row.get("label"), row["prediction"]
        theirs = row.get("source_prediction")
        if theirs is not None:
            tally.compared += 1
            tally.changed += ours != theirs
        if label is not None:
            tally.labelled += 1
            tally.wrong += ours != label
            if theirs is not None:
                tally.both += 1
                tally.source_wrong += theirs != label
                tally.mended += theirs != label and ours == label
                tally.broken += theirs == label and ours != label


def batch_entry(
    rows: Sequence[dict[str, Any]],
    predictions: Predictions,
    number: int,
    event: str,
    verdict: Verdict,
    reason: str,
) -> dict[str, Any]:
    """One line of the log: what happened to a batch, the signals of its predictions, and the verdict."""
    events = [row["event"] for row in rows]
    prefixes = {"adapted": "", "source": "source_", "unmoved": "unmoved_"}
    signals = {
        prefixes[which] + name: None if sums is None else getattr(sums, name)
        for which, sums in predictions.sums().items()
        for name in SIGNALS
    }
    return {
        "batch": number,
        "images": len(rows),
        "unreadable": events.count(UNREADABLE),
        "left_out": events.count(LEFT_OUT),
        "event": event,
        **signals,
        "agreement": _share(rows, "prediction", "source_prediction"),
        "error": _error(rows, "prediction"),
        "source_error": _error(rows, "source_prediction"),
        "verdict": verdict,
        "reason": reason,
    }


def _share(rows: Sequence[dict[str, Any]], one: str, other: str) -> float | None:
    """The share of rows in which two columns agree, of those that have both."""
    both = [(row[one], row[other]) for row in rows if None not in (row.get(one), row.get(other))]
    return sum(a == b for a, b in both) / len(both) if both else None


def _error(rows: Sequence[dict[str, Any]], predicted: str) -> float | None:
    right = _share(rows, predicted, "label")
    return None if right is None else 100 * (1 - right)
