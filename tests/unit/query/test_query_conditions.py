"""Which partition keys, ids and points a filter pins."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.keys import Key
from armillary.model.values import UNDEFINED
from armillary.query.conditions import (
    ALL,
    NOTHING,
    Condition,
    Defined,
    Equal,
    In,
    Range,
    pinned_ids,
    pinned_keys,
    pinned_points,
    pinned_prefixes,
    prefix_range,
)


def condition(where: str, **parameters: Any) -> Condition:
    given = {f"@{name}": value for name, value in parameters.items()}
    return compile_query(f"SELECT * FROM c WHERE {where}").bind(given).condition


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("c.a = 5", Equal("/a", 5)),
        ("5 < c.a.b", Range("/a/b", 5, UNDEFINED, includes_low=False)),
        ("c.a > 1 AND c.a <= 9", Range("/a", 1, 9, includes_low=False)),
        ("c.a > 1 AND c.a < 'x'", NOTHING),
        ("c.a BETWEEN 1 AND 2", Range("/a", 1, 2)),
        ("c.a IN ('x', 'y')", In("/a", ("x", "y"))),
        ("c.a IN ('x', undefined)", Equal("/a", "x")),
        ("c['x/y'] = 1", Equal('/"x/y"', 1)),
        ("c.tags[0] = 'x'", Equal("/tags/[]", "x")),
        ("ARRAY_CONTAINS(c.tags, 'x')", Equal("/tags/[]", "x")),
        ("ARRAY_CONTAINS(['x', 'y'], c.a)", In("/a", ("x", "y"))),
        ("STARTSWITH(c.a, 'ab')", Range("/a", "ab", "ac", includes_high=False)),
        ("STARTSWITH(c.a, 'ab', true)", ALL),
        ("IS_DEFINED(c.a)", Defined("/a")),
        ("IS_DEFINED(c.a) = false", Equal("/a", UNDEFINED)),
        ("NOT IS_DEFINED(c.a)", Equal("/a", UNDEFINED)),
        ("IS_NULL(c.a)", Equal("/a", None)),
        ("c.flag", Equal("/flag", True)),
        ("NOT c.flag", Equal("/flag", False)),
        ("c.a = 5 AND LOWER(c.b) = 'x'", Equal("/a", 5)),
        ("c.a = 5 OR LOWER(c.b) = 'x'", ALL),
        ("c.a = 5 OR false", Equal("/a", 5)),
        ("NOT (c.a = 5)", ALL),
        ("c.a != 5", ALL),
        ("c.a = c.b", ALL),
        ("c.a = undefined", NOTHING),
        ("false", NOTHING),
        ("true", ALL),
        ("1", NOTHING),
        ("c.a < [1]", NOTHING),
    ],
)
def test_condition_of_a_filter(where: str, expected: Condition) -> None:
    assert condition(where) == expected


def test_ranges_on_elements_are_not_joined() -> None:
    # [10, 0] satisfies this, and no single element lies between 1 and 5.
    found = condition("c.a[0] > 1 AND c.a[1] < 5")
    assert found != condition("c.a[0] > 1") and not isinstance(found, Range)


@pytest.mark.parametrize(
    ("prefix", "high"),
    [("a", "b"), ("a\U0010ffff", "b"), ("\ud7ff", "\ue000"), ("\U0010ffff", UNDEFINED)],
)
def test_prefix_range(prefix: str, high: Any) -> None:
    assert prefix_range("/a", prefix) == Range("/a", prefix, high, includes_high=False)


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("c.pk = 'x'", [("x",)]),
        ("c.pk = 'x' AND c.a > 1", [("x",)]),
        ("c.pk IN ('x', 'y', 'x')", [("x",), ("y",)]),
        ("c.pk = 'x' OR c.pk = 5", [("x",), (5,)]),
        ("(c.id = '1' AND c.pk = 'x') OR (c.id = '2' AND c.pk = null)", [("x",), (None,)]),
        ("IS_DEFINED(c.pk) = false", [(UNDEFINED,)]),
        ("c.pk = {a: 1}", [(UNDEFINED,)]),
        ("c.pk = 'x' AND c.pk = 'y'", []),
        ("c.pk IN ('x', 'y') AND c.pk IN ('y', 'z')", [("y",)]),
        ("false", []),
        ("c.pk = 'x' OR c.a = 1", None),
        ("c.pk > 'x'", None),
        ("NOT (c.pk = 'x')", None),
        ("c.pk[0] = 'x'", None),
        ("c.a = 1", None),
        ("true", None),
    ],
)
def test_pinned_keys(where: str, keys: list[tuple[Any, ...]] | None) -> None:
    assert pinned_keys(condition(where), ["/pk"]) == keys


def test_pinned_hierarchical_keys() -> None:
    paths = ["/a", "/b", "/c"]
    assert pinned_keys(condition("c.a = 1 AND c.b = 2 AND c.c IN (3, 4)"), paths) == [(1, 2, 3), (1, 2, 4)]
    assert pinned_keys(condition("c.a = 1 AND c.b = 2"), paths) is None
    assert pinned_prefixes(condition("c.a = 1 AND c.b = 2"), paths) == [(1, 2)]
    assert pinned_prefixes(condition("c.a = 1 AND c.c = 2"), paths) == [(1,)]
    assert pinned_prefixes(condition("c.b = 1"), paths) is None
    assert pinned_prefixes(condition("(c.a = 1 AND c.b = 2) OR c.a = 3"), paths) == [(1, 2), (3,)]


def test_pinned_points_of_a_thousand() -> None:
    where = " OR ".join(f"(c.id = @i{number} AND c.pk = @p{number})" for number in range(1000))
    given = {f"i{number}": f"id{number}" for number in range(1000)} | {f"p{number}": number for number in range(1000)}
    found = pinned_points(condition(where, **given), ["/pk"])
    assert found is not None
    assert found[:2] == [(Key((0,)), "id0"), (Key((-0.0,)), "id0")]  # equal in the filter, and two keys
    assert found[2:] == [(Key((number,)), f"id{number}") for number in range(1, 1000)]


def test_pinned_ids() -> None:
    assert pinned_ids(condition("c.id IN ('a', 'b', 5)")) == ["a", "b"]
    assert pinned_ids(condition("c.id = 'a' AND c.x > 5")) == ["a"]
    assert pinned_ids(condition("c.id > 'a'")) is None


def test_too_many_combinations_are_no_pin() -> None:
    members = ", ".join(map(str, range(100)))
    found = condition(f"c.a IN ({members}) AND c.b IN ({members}) AND c.c = 1")
    assert pinned_prefixes(found, ["/a", "/b", "/c"]) is None
    assert pinned_keys(found, ["/c"]) == [(1,)]
