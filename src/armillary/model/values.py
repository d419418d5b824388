"""The values that items are made of: JSON as plain Python objects, plus `UNDEFINED` for what is not there.

Here are their total order and their equality, which every language and the index share. Numbers are IEEE doubles
whatever their Python type, so an int beyond 2**53 equals the double nearest to it. How values become bytes is left to
`encoding.py`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias


class Undefined:
    """The class of `UNDEFINED`: one falsy object, the same after a copy or a pickle."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __reduce__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = Undefined()

Value: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | Undefined | None

# Ints up to here are doubles without rounding; orjson, BSON and literals may bring larger ones.
EXACT_INT_MAX: Final = 2**53

RANK_UNDEFINED, RANK_NULL, RANK_FALSE, RANK_TRUE, RANK_NUMBER, RANK_STRING, RANK_ARRAY, RANK_OBJECT = range(8)

_RANKS: dict[type, int] = {
    Undefined: RANK_UNDEFINED,
    type(None): RANK_NULL,
    int: RANK_NUMBER,
    float: RANK_NUMBER,
    str: RANK_STRING,
    list: RANK_ARRAY,
    dict: RANK_OBJECT,
}


def type_rank(value: Value) -> int:
    """Where a value's type stands in the order: undefined, null, false, true, numbers, strings, arrays, objects."""
    if value is True:
        return RANK_TRUE
    if value is False:
        return RANK_FALSE
    return _RANKS[type(value)]


def as_double(number: int | float) -> float:
    """The double that a number stands for. What is beyond the largest double becomes an infinity."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def compare(first: Value, second: Value) -> int:
    """-1, 0 or 1 in the total order of all values.

    Strings go by code point. Arrays go element by element and the shorter first; objects likewise as their
    (name, value) pairs sorted by name. NaN, which arithmetic can make, is the least number and equals itself.
    """
    rank, other_rank = type_rank(first), type_rank(second)
    if rank != other_rank:
        return -1 if rank < other_rank else 1
    if rank == RANK_STRING:
        return (first > second) - (first < second)  # type: ignore[operator]
    if rank == RANK_NUMBER:
        return _compare_numbers(first, second)  # type: ignore[arg-type]
    if rank == RANK_ARRAY:
        return _compare_arrays(first, second)  # type: ignore[arg-type]
    if rank == RANK_OBJECT:
        return _compare_objects(first, second)  # type: ignore[arg-type]
    return 0


def _compare_numbers(first: int | float, second: int | float) -> int:
    left, right = as_double(first), as_double(second)
    if left < right:
        return -1
    if left > right:
        return 1
    # Equal, or at least one is NaN, which alone differs from itself.
    return (left == left) - (right == right)


def _compare_arrays(first: list[Any], second: list[Any]) -> int:
    for left, right in zip(first, second, strict=False):
        order = compare(left, right)
        if order:
            return order
    return (len(first) > len(second)) - (len(first) < len(second))


def _compare_objects(first: dict[str, Any], second: dict[str, Any]) -> int:
    for left, right in zip(sorted(first), sorted(second), strict=False):
        if left != right:
            return -1 if left < right else 1
        order = compare(first[left], second[right])
        if order:
            return order
    return (len(first) > len(second)) - (len(first) < len(second))


def equal(first: Value, second: Value) -> bool:
    """Deep equality: 1 equals 1.0, true does not equal 1, the order of properties does not count.

    True exactly when `compare` gives 0, without the sorting that an order needs.
    """
    kind, other_kind = type(first), type(second)
    if kind is str or other_kind is str:
        return kind is other_kind and first == second
    if (kind is int or kind is float) and (other_kind is int or other_kind is float):
        return _compare_numbers(first, second) == 0  # type: ignore[arg-type]
    if kind is not other_kind:
        return False
    if kind is list:
        return _equal_arrays(first, second)  # type: ignore[arg-type]
    if kind is dict:
        return _equal_objects(first, second)  # type: ignore[arg-type]
    return first is second


def _equal_arrays(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(map(equal, first, second))


def _equal_objects(first: dict[str, Any], second: dict[str, Any]) -> bool:
    if len(first) != len(second):
        return False
    # A property that is there and UNDEFINED differs from one that is not there, as in `compare`.
    return all(name in second and equal(left, second[name]) for name, left in first.items())
