from __future__ import annotations

import copy
import itertools
import pickle

import pytest

from armillary.model.values import UNDEFINED, Value, as_double, compare, equal, type_rank

NAN, INFINITY = float("nan"), float("inf")

# Each is less than every one after it.
LADDER: list[Value] = [
    UNDEFINED,
    None,
    False,
    True,
    NAN,
    -INFINITY,
    -1.7976931348623157e308,
    -(2**53),
    -1.5,
    -1,
    -5e-324,
    0,
    5e-324,
    0.1,
    1,
    1.5,
    2**53 - 1,
    2**53,
    2**53 + 2,
    1e300,
    INFINITY,
    "",
    "\x00",
    "\x00\x00",
    "\x01",
    "10",
    "9",
    "B",
    "a",
    "a\x00",
    "a\x00b",
    "a\x01",
    "aa",
    "b",
    "é",
    "你好",
    "\uffff",
    "😀",  # beyond every character of the basic plane: by code point, not by UTF-16 unit
    [],
    [UNDEFINED],
    [None],
    [1],
    [1, 1],
    [1, "a"],
    [2],
    [[]],
    [[1]],
    [{}],
    {},
    {"": 0},
    {"a": None},
    {"a": 1},
    {"a": 1, "b": 1},
    {"a": 1, "c": 0},
    {"a": 2},
    {"a": {}},
    {"aa": 0},
    {"b": 0},
]


def test_the_ladder_is_a_total_order() -> None:
    for (i, low), (j, high) in itertools.product(enumerate(LADDER), repeat=2):
        expected = (i > j) - (i < j)
        assert compare(low, high) == expected, (low, high)
        assert equal(low, high) == (expected == 0), (low, high)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 1.0),
        (0, -0.0),
        (2**53, 2**53 + 1),  # numbers are doubles
        (2**63, 9.223372036854775807e18),
        (10**400, INFINITY),
        (-(10**400), -INFINITY),
        (NAN, float("nan")),
        ([1, [2.0]], [1.0, [2]]),
        ({"a": 1, "b": [True]}, {"b": [True], "a": 1.0}),
    ],
)
def test_equal_values(first: Value, second: Value) -> None:
    assert equal(first, second)
    assert compare(first, second) == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (True, 1),
        (False, 0),
        (0, False),
        (None, UNDEFINED),
        (None, 0),
        ("1", 1),
        ([True], [1]),
        ({"a": True}, {"a": 1}),
        ({"a": UNDEFINED}, {}),
        ({"a": UNDEFINED}, {"b": UNDEFINED}),
        ([], {}),
        ("", None),
        ([1, 2], [2, 1]),
    ],
)
def test_different_values(first: Value, second: Value) -> None:
    assert not equal(first, second)
    assert compare(first, second) == -compare(second, first) != 0


def test_type_ranks_grow_in_the_order_of_the_types() -> None:
    values: list[Value] = [UNDEFINED, None, False, True, 1, "", [], {}]
    ranks = [type_rank(value) for value in values]
    assert ranks == sorted(set(ranks))
    assert type_rank(1) == type_rank(1.5)


def test_undefined_is_one_falsy_object() -> None:
    assert not UNDEFINED
    assert copy.deepcopy({"a": UNDEFINED})["a"] is UNDEFINED
    assert pickle.loads(pickle.dumps(UNDEFINED)) is UNDEFINED
    assert repr(UNDEFINED) == "UNDEFINED"


def test_as_double_knows_no_overflow() -> None:
    assert as_double(10**400) == INFINITY
    assert as_double(-(10**400)) == -INFINITY
    assert as_double(3) == 3.0


def test_deep_nesting_is_compared() -> None:
    first: Value = 1
    second: Value = 2
    for _ in range(130):
        first, second = [{"a": first}], [{"a": second}]
    assert compare(first, second) == -1
    assert not equal(first, second)
    assert equal(first, copy.deepcopy(first))
