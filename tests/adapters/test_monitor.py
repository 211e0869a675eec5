"""The monitor: its signals against their definitions, its verdicts on predictions that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch import Tensor

from fenchel.adapters.monitor import Compared, Monitor, Predicted


def probabilities(count: int, classes: int = 10, *, sharp: float = 4.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (sharp * torch.randn(count, classes, generator=generator)).softmax(-1)


def in_one_class(count: int, classes: int = 10) -> Tensor:
    scores = torch.zeros(count, classes)
    scores[:, 3] = 5.0
    return scores.softmax(-1)


def test_signals_are_what_their_definitions_say() -> None:
    p = probabilities(64).double().numpy()
    found = Predicted.of(torch.from_numpy(p))
    mean = np.mean([entropy(row) for row in p])
    marginal = entropy(p.mean(0))
    counts = np.bincount(p.argmax(1), minlength=10)
    assert found.entropy == pytest.approx(mean)
    assert found.marginal_entropy == pytest.approx(marginal)
    assert found.mutual_information == pytest.approx(marginal - mean)
    assert found.effective_classes == pytest.approx(np.exp(entropy(counts / 64)))
    assert found.confidence == pytest.approx(p.max(1).mean())
    assert found.class_counts == counts.tolist()


def test_sums_over_batches_are_those_of_all_samples() -> None:
    p = probabilities(90)
    whole, parts = Predicted.of(p), Predicted.of(p[:25]) + Predicted.of(p[25:])
    assert parts.mutual_information == pytest.approx(whole.mutual_information)
    assert parts.class_counts == whole.class_counts


@pytest.mark.parametrize(
    ("adapted", "unmoved", "verdict"),
    [
        (probabilities(200), None, "healthy"),
        (in_one_class(200), None, "collapsed"),
        (probabilities(200), probabilities(200), "healthy"),
        (probabilities(200) ** 0.2, None, "suspect"),  # the same classes, all unsure
    ],
    ids=["same", "one class", "same as unmoved", "unsure"],
)
def test_verdicts(adapted: Tensor, unmoved: Tensor | None, verdict: str) -> None:
    adapted = adapted / adapted.sum(-1, keepdim=True)
    compared = Compared(
        Predicted.of(adapted),
        Predicted.of(probabilities(200)),
        None if unmoved is None else Predicted.of(unmoved),
    )
    assert compared.judged()[0] == verdict


def test_a_collapse_is_seen_even_where_the_source_itself_uses_few_classes() -> None:
    """On strong noise it says three classes; updates that lose four of ten are harmful all the same."""
    source = probabilities(300, 3)
    source = torch.cat([source, torch.zeros(300, 7)], -1)
    adapted = torch.cat([probabilities(300, 6), torch.zeros(300, 4)], -1)
    compared = Compared(
        Predicted.of(adapted), Predicted.of(source), Predicted.of(probabilities(300))
    )
    assert compared.judged()[0] == "collapsed"


@pytest.mark.parametrize(("count", "verdict"), [(300, "healthy"), (500, "suspect")])
def test_statistics_that_lose_what_the_source_knows_are_suspect(count: int, verdict: str) -> None:
    source, blunter = probabilities(count, sharp=4.0), probabilities(count, sharp=3.3)
    known, left = (
        entropy(p.mean(0)) - np.mean([entropy(row) for row in p])
        for p in (source.double().numpy(), blunter.double().numpy())
    )
    assert 0.085 < known - left < 0.3
    compared = Compared(Predicted.of(source), Predicted.of(source), Predicted.of(blunter))
    judged, reason = compared.judged()
    assert judged == verdict
    assert ("under the adapter's statistics" in reason) == (verdict == "suspect")


def test_a_monitor_asks_at_first_now_and_then_and_in_doubt() -> None:
    monitor = Monitor(every=8, first=100)
    good, bad = Predicted.of(probabilities(50)), Predicted.of(in_one_class(50))
    asked = []
    for batch in range(20):
        asks = monitor.wants_comparison(good)
        asked += [batch] if asks else []
        monitor.update(Compared(good, good) if asks else None)
    assert asked == [0, 1, 2, 3, 8, 16]
    assert monitor.wants_comparison(bad)
    for _ in range(10):
        monitor.update(Compared(bad, good))
    assert monitor.verdict == "collapsed"
    assert monitor.wants_comparison(good)
    for _ in range(10):
        monitor.update(Compared(good, good))
    assert monitor.verdict == "healthy"


def test_large_batches_are_not_compared_for_ever() -> None:
    """The window holds fewer of them than are compared at first."""
    monitor, good, asked = Monitor(), Predicted.of(probabilities(300)), []
    for _ in range(10):
        asked.append(monitor.wants_comparison(good))
        monitor.update(Compared(good, good) if asked[-1] else None)
    assert asked == [True, True] + 8 * [False]


def test_small_batches_in_doubt_are_compared_again_at_once() -> None:
    """A single one tells nothing: the last ones together do."""
    monitor = Monitor(first=8)
    good, bad = Predicted.of(probabilities(4)), Predicted.of(in_one_class(4))
    for _ in range(50):
        monitor.update(Compared(good, good))
    monitor.update(Compared(bad, good))
    assert not monitor.wants_comparison(good)
    for _ in range(3):
        monitor.update(Compared(bad, good))
    assert monitor.verdict == "healthy"
    assert monitor.wants_comparison(good)


def test_a_few_images_give_no_verdict() -> None:
    monitor = Monitor()
    monitor.update(Compared(Predicted.of(in_one_class(10)), Predicted.of(probabilities(10))))
    assert monitor.verdict == "healthy"
    assert "too few" in monitor.reason


def test_a_monitor_goes_on_from_its_tensors() -> None:
    monitor = Monitor()
    for seed in range(5):
        parts = [Predicted.of(probabilities(40, seed=seed + k)) for k in range(3)]
        monitor.update(Compared(*parts))
    again = Monitor.from_tensors(monitor.to_tensors())
    mine, theirs = monitor.to_tensors(), again.to_tensors()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    assert (again.verdict, again.reason) == (monitor.verdict, monitor.reason)
    last = Compared(Predicted.of(in_one_class(400)), Predicted.of(probabilities(400)))
    assert again.update(last) == monitor.update(last) == "collapsed"
    assert again.reason == monitor.reason
