"""Student's interval against scipy's own test, and what counts as a stream."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fenchel.bench.record import Record
from fenchel.report.student import over_streams, student


def test_the_interval_and_the_p_value_are_those_of_the_paired_test() -> None:
    random = np.random.default_rng(0)
    ours, theirs = random.normal(30, 5, 15), random.normal(29, 5, 15)
    oracle = stats.ttest_rel(ours, theirs)
    found = student((ours - theirs).tolist())
    assert found.p_value == pytest.approx(oracle.pvalue)
    interval = oracle.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert (found.estimate, found.streams) == (pytest.approx((ours - theirs).mean()), 15)


def test_one_stream_proves_nothing() -> None:
    found = student([5.0])
    assert (found.low, found.high, found.p_value) == (-math.inf, math.inf, 1)


def test_the_same_difference_everywhere_is_certain_and_none_at_all_is_none() -> None:
    assert student([0.0, 0.0]).p_value == 1
    assert student([2.0, 2.0]).p_value == 0


def test_seeds_of_one_shift_count_once_among_several_shifts(made: SimpleNamespace) -> None:
    rates = {"fog": 0.3, "snow": 0.4, "frost": 0.5}

    def records(method: str, better: float) -> list[Record]:
        return [
            made.record(made.cell(method, shift, seed=seed), rate - better)
            for shift, rate in rates.items()
            for seed in (0, 1)
        ]

    ours, theirs = records("bn", 0), records("conjugate", 0.05)
    errors = [a.error_percent - b.error_percent for a, b in zip(ours, theirs, strict=True)]
    by_shift = np.array(errors).reshape(3, 2).mean(1)
    assert over_streams(ours, theirs) == student(by_shift.tolist())


def test_the_interval_goes_over_seeds_where_there_is_one_shift(made: SimpleNamespace) -> None:
    pairs = [
        [made.record(made.cell(m, "fog", seed=k)) for k in (0, 1, 2)] for m in ("bn", "entropy")
    ]
    found = over_streams(*pairs)
    assert found is not None
    assert found.streams == 3


def test_what_only_one_method_ran_is_left_out(made: SimpleNamespace) -> None:
    bn = [made.record(made.cell("bn", shift)) for shift in ("fog", "snow")]
    entropy = [made.record(made.cell("entropy", shift)) for shift in ("snow", "frost")]
    found = over_streams(bn, entropy)
    assert found is not None
    assert found.streams == 1
    assert over_streams(bn[:1], entropy) is None
