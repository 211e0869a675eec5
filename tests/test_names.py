"""Names at the rim: specs, registries, and errors that suggest the nearest name."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenchel import names
from fenchel.names import Registry, build, format_spec, parse_spec, unknown


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known():
    error = unknown("method", "conjugat", ["soft", "conjugate", "hard"])
    assert isinstance(error, ValueError)
    assert str(error) == (
        "unknown method 'conjugat'. Did you mean 'conjugate'? Known: conjugate, hard, soft."
    )


def test_a_name_unlike_any_gets_no_suggestion():
    assert str(unknown("loss", "zzz", ["poly"])) == "unknown loss 'zzz'. Known: poly."
    assert str(unknown("loss", "poly", [])) == "unknown loss 'poly'. Known: (none)."


def test_what_is_no_string_is_answered_alike():
    assert "unknown method 3." in str(unknown("method", 3, ["soft"]))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("poly", ("poly", {})),
        ("poly:", ("poly", {})),
        (" poly:epsilon=6 ", ("poly", {"epsilon": 6})),
        ("poly:epsilon=6.5, power=-1e-3", ("poly", {"epsilon": 6.5, "power": -1e-3})),
        ("memo:input_range=(0, 1),views=2", ("memo", {"input_range": (0, 1), "views": 2})),
        ("set:sizes=[1,2],root=here", ("set", {"sizes": [1, 2], "root": "here"})),
        (
            "a:flag=True,nothing=None,path=a=b",
            ("a", {"flag": True, "nothing": None, "path": "a=b"}),
        ),
    ],
)
def test_specs_are_read(spec, expected):
    assert parse_spec(spec) == expected


def test_an_argument_without_a_value_is_refused():
    with pytest.raises(ValueError, match=r"'epsilon' in 'poly:epsilon' has no '='"):
        parse_spec("poly:epsilon")


values = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.tuples(st.integers(), st.floats(0, 1)),
    st.lists(st.integers(), max_size=3),
    st.from_regex(r"[a-z][a-z0-9_/]{3,9}", fullmatch=True),
)


@settings(deadline=None, max_examples=60)
@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
    st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), values, max_size=3),
)
def test_reading_undoes_writing(name, arguments):
    assert parse_spec(format_spec(name, arguments)) == (name, arguments)


def test_a_registry_is_a_mapping_with_helpful_errors():
    things = Registry("thing")
    things.add("one", 1)
    assert things.register("two")(2) == 2
    assert dict(things) == {"one": 1, "two": 2}
    assert "one" in things
    assert "three" not in things
    assert things.get("three") is None
    assert things.get("three", 3) == 3
    with pytest.raises(ValueError, match=r"unknown thing 'ones'. Did you mean 'one'"):
        things["ones"]


def test_a_name_is_taken_once():
    things = Registry("thing")
    thing = object()
    things.add("one", thing)
    things.add("one", thing)
    with pytest.raises(ValueError, match="a thing named 'one' exists already"):
        things.add("one", object())


def test_third_parties_add_theirs_by_entry_point(monkeypatch):
    point = EntryPoint("fraction", "fractions:Fraction", "fenchel.things")
    asked = []

    def entry_points(group):
        asked.append(group)
        return EntryPoints([point])

    monkeypatch.setattr(names, "entry_points", entry_points)
    things = Registry("thing", group="fenchel.things")
    things.add("own", int)
    assert asked == [], "nothing is loaded before it is needed"
    assert sorted(things) == ["fraction", "own"]
    assert things["fraction"](1, 2) == 0.5
    assert len(things) == 2
    assert asked == ["fenchel.things"], "and only once"


@dataclass
class Point:
    x: int
    y: int = 0


def test_a_spec_builds_what_it_names():
    points = {"point": Point}
    assert build(points, "point", "point:x=1,y=2") == Point(1, 2)
    with pytest.raises(
        ValueError, match=r"unknown argument of the point 'point': 'z'.*Known: x, y"
    ):
        build(points, "point", "point:z=1")
    with pytest.raises(ValueError, match=r"cannot build the point 'point'.*'x'"):
        build(points, "point", "point")
