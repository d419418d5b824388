"""The values that items consist of: JSON as plain Python objects, plus `UNDEFINED` for absent ones.

Here are their total order and their equality, which every language and the index share. Numbers are IEEE doubles
whatever their Python type, so an int beyond 2**53 equals the double nearest to it. `encoding.py` converts values to
bytes.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from armillary import limits
from armillary.work import spend


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

# Ints up to here are exact as doubles; orjson, BSON and literals may yield larger ones.
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
    """The position of a value's type in the order: undefined, null, false, true, numbers, strings, arrays, objects."""
    if value is True:
        return RANK_TRUE
    if value is False:
        return RANK_FALSE
    return _RANKS[type(value)]


def as_double(number: int | float) -> float:
    """A number as a double. Beyond the largest double it is infinite."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


_CHUNK = 256  # elements compared before the event loop may have its turn
_LONG = 4_096  # strings of more characters take time to compare
_LONG_SHIFT = 10  # characters for one unit of work, as a power of two


def compare(first: Value, second: Value) -> int:
    """-1, 0 or 1 in the total order of all values.

    Strings go by code point. Arrays go element by element and the shorter first; objects likewise as their
    (name, value) pairs sorted by name. NaN, which arithmetic can make, is the least number and equals itself.
    """
    rank, other_rank = type_rank(first), type_rank(second)
    if rank != other_rank:
        return -1 if rank < other_rank else 1
    if rank == RANK_STRING:
        if len(first) > _LONG:  # type: ignore[arg-type]
            spend(len(first) >> _LONG_SHIFT)  # type: ignore[arg-type]
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
    for place, (left, right) in enumerate(zip(first, second, strict=False)):
        if place % _CHUNK == 0:
            spend(min(_CHUNK, len(first) - place))
        order = compare(left, right)
        if order:
            return order
    return (len(first) > len(second)) - (len(first) < len(second))


def _compare_objects(first: dict[str, Any], second: dict[str, Any]) -> int:
    spend(2 * (len(first) + len(second)))
    for left, right in zip(sorted(first), sorted(second), strict=False):
        spend(2)
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
        if kind is not other_kind or len(first) != len(second):  # type: ignore[arg-type]
            return False
        if len(first) > _LONG:  # type: ignore[arg-type]
            spend(len(first) >> _LONG_SHIFT)  # type: ignore[arg-type]
        return first == second
    if (kind is int or kind is float) and (other_kind is int or other_kind is float):
        return _compare_numbers(first, second) == 0  # type: ignore[arg-type]
    if kind is not other_kind:
        return False
    if first is second:
        return True
    if kind is list:
        return _equal_arrays(first, second)  # type: ignore[arg-type]
    if kind is dict:
        return _equal_objects(first, second)  # type: ignore[arg-type]
    return first is second


def _equal_arrays(first: list[Any], second: list[Any]) -> bool:
    size = len(first)
    if size != len(second):
        return False
    if size <= _CHUNK:
        spend(size)
        return all(map(equal, first, second))
    for start in range(0, size, _CHUNK):
        spend(_CHUNK)
        if not all(map(equal, first[start : start + _CHUNK], second[start : start + _CHUNK])):
            return False
    return True


def _equal_objects(first: dict[str, Any], second: dict[str, Any]) -> bool:
    size = len(first)
    if size != len(second):
        return False
    if size <= _CHUNK:
        spend(size)
    # A property that is UNDEFINED differs from one that is absent, as in `compare`.
    for place, (name, left) in enumerate(first.items()):
        if size > _CHUNK and place % _CHUNK == 0:
            spend(_CHUNK)
        if name not in second or not equal(left, second[name]):
            return False
    return True


def hash_key(value: Any) -> Any:
    """A hashable substitute for values other than arrays and objects; substitutes are equal exactly when the values
    are."""
    kind = value.__class__
    if kind is bool:
        return (value,)  # true is not 1
    if kind is float and value != value:
        return _NAN_KEY  # equals itself here
    if kind is int and not -EXACT_INT_MAX <= value <= EXACT_INT_MAX:
        return as_double(value)
    return value


_NAN_KEY: Final = ("NaN",)


# Memory.

_STRING_BYTES, _ARRAY_BYTES, _OBJECT_BYTES = 56, 64, 64  # of an empty one, in Python's memory
_ELEMENT_BYTES, _PROPERTY_BYTES, _NUMBER_BYTES = 8, 104, 32


def weight(value: Any) -> int:
    """About how many bytes of memory a value takes, including everything in it; shared parts count each time. It is at
    least the size of its JSON, except for characters that JSON escapes."""
    kind = value.__class__
    if kind is str:
        return _STRING_BYTES + (len(value) if value.isascii() else 3 * len(value))
    if kind is list:
        total = _ARRAY_BYTES
        for start in range(0, len(value), _CHUNK):
            spend(_CHUNK)
            total += sum(map(weight, value[start : start + _CHUNK]))
            if total > WEIGHT_MAX:
                return total
        return total + _ELEMENT_BYTES * len(value)
    if kind is dict:
        spend(len(value))
        total = _OBJECT_BYTES
        for name, inner in value.items():
            total += _PROPERTY_BYTES + len(name) + weight(inner)
            if total > WEIGHT_MAX:
                return total
        return total
    return _NUMBER_BYTES


WEIGHT_MAX: Final = 2 * limits.WORK_BYTES_MAX  # the weight of larger values is not computed
