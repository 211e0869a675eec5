"""Verdicts on the paper's claims: by a naive rule, by cases that have to fail, and by what the data name."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from fenchel.paper.claims import Claim, Evidence, Kind, judge, read_claims, side

CLAIMS = read_claims()


def claim(kind: Kind = "ahead", bound: float = 0.0) -> Claim:
    return Claim(words="w", paper="p", change="c", kind=kind, bound=bound, by="cells")


def evidence(low: float, high: float, *others: tuple[float, float], p: float = 1e-4) -> Evidence:
    return Evidence("other", (low + high) / 2, ((low, high), *others), p)


def word(made: Claim, *comparisons: Evidence) -> str:
    (found,) = judge([(made, comparisons)])
    return found.word


def truths(kind: Kind, bound: float, interval: tuple[float, float]) -> set[bool]:
    """Whether the claim would be true, for many values that the interval allows."""
    low, high = interval
    rule = {
        "ahead": lambda value: value > 0,
        "no worse": lambda value: value >= -bound,
        "level": lambda value: abs(value) <= bound,
        "reaches": lambda value: value >= bound,
    }[kind]
    return {rule(low + (high - low) * step / 1000) for step in range(1001)}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_an_interval_speaks_only_if_the_claim_is_as_true_for_all_that_it_allows(kind: Kind) -> None:
    grid = [value / 4 - 2.03 for value in range(17)]
    for low, high in product(grid, grid):
        if low < high:
            said = {frozenset({True}): 1, frozenset({False}): -1}
            expected = said.get(frozenset(truths(kind, 0.75, (low, high))), 0)
            assert side(kind, 0.75, (low, high)) == expected, (low, high)


def test_one_comparison_decides_as_its_interval_does() -> None:
    assert word(claim(), evidence(0.1, 0.4)) == "confirmed"
    assert word(claim(), evidence(-0.1, 0.4)) == "not told apart"
    assert word(claim(), evidence(-0.4, -0.1)) == "contradicted"


def test_all_comparisons_have_to_speak_for_a_claim_and_one_is_enough_against_it() -> None:
    good, open_, bad = evidence(1, 2), evidence(-1, 2), evidence(-2, -1)
    assert word(claim(), good, good) == "confirmed"
    assert word(claim(), good, open_) == "not told apart"
    assert word(claim(), good, open_, bad) == "contradicted"


def test_both_intervals_are_asked() -> None:
    assert word(claim(), evidence(0.1, 0.4, (0.05, 0.6))) == "confirmed"
    assert word(claim(), evidence(0.1, 0.4, (-0.2, 0.9))) == "not told apart"
    assert word(claim(), evidence(-0.4, -0.1, (-0.9, 0.2))) == "not told apart"


def test_a_finding_among_many_comparisons_has_to_survive_the_correction() -> None:
    alone = evidence(0.1, 0.4, p=0.01)
    assert word(claim(), alone) == "confirmed"
    others = [(claim(), [evidence(-1, 1, p=0.5)])] * 9
    first, *rest = judge([(claim(), [alone]), *others])
    assert first.word == "not told apart"
    assert all(found.word == "not told apart" for found in rest)


def test_tables_are_corrected_by_themselves_unless_all_are_taken_together() -> None:
    first = replace(claim(), facts={"table": "one"})
    others = [(replace(claim(), facts={"table": "two"}), [evidence(-1, 1, p=0.5)])] * 9
    given = [(first, [evidence(0.1, 0.4, p=0.01)]), *others]
    assert judge(given)[0].word == "confirmed"
    assert judge(given, together=True)[0].word == "not told apart"


def test_claims_that_two_things_match_are_no_part_of_the_correction() -> None:
    matching = (claim("level", 0.5), [evidence(-0.1, 0.2, p=0.9)])
    first, second = judge([(claim(), [evidence(0.1, 0.4, p=0.04)]), matching])
    assert (first.word, second.word) == ("confirmed", "confirmed")


def test_the_weakest_comparison_of_those_that_decide_is_shown() -> None:
    (found,) = judge([(claim(), [evidence(2, 3), evidence(0.5, 1), evidence(4, 5)])])
    assert found.deciding == evidence(0.5, 1)
    assert (found.speaking_for, found.comparisons) == (3, 3)
    (found,) = judge([(claim(), [evidence(-5, 3), evidence(-2, -1), evidence(4, 5)])])
    assert found.deciding == evidence(-2, -1)
    assert (found.speaking_for, found.comparisons) == (1, 3)
    (found,) = judge([(claim("level", 1), [evidence(-0.9, -0.7), evidence(0.1, 0.3)])])
    assert found.deciding == evidence(-0.9, -0.7)


def test_nothing_to_compare_is_no_verdict() -> None:
    assert word(claim()) == "not run"


def test_a_kind_of_claim_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="kind of claim"):
        claim("better")  # type: ignore[arg-type]


def test_twenty_claims_and_more_can_be_judged_and_each_is_said_once() -> None:
    assert sum(bool(each.by) for each in CLAIMS) >= 20
    assert len({each.words for each in CLAIMS}) == len(CLAIMS)
    assert all(each.words and each.paper and each.change for each in CLAIMS)
