"""Functions of arrays, sets and objects. Elements are compared deeply; a set is an array without repetition, in the
order in which its elements were first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cmp_to_key
from itertools import chain
from typing import Any

from armillary import limits
from armillary.languages.sql.library.numbers import ABSENT, INT64_MAX, NUMBERS, count, number, whole
from armillary.model.encoding import encode_value
from armillary.model.values import UNDEFINED, Value, as_double, compare, equal

_NESTED = (list, dict)
_FEW = 4  # values that are as soon compared one by one


def array_concat(*arrays: Any) -> Value:
    if not all(array.__class__ is list for array in arrays):
        return UNDEFINED
    # No item has more elements than bytes; more is a way to fill the memory.
    return list(chain(*arrays)) if sum(map(len, arrays)) <= limits.ITEM_BYTES_MAX else UNDEFINED


def array_length(array: Any) -> Value:
    return len(array) if array.__class__ is list else UNDEFINED


def array_slice(array: Any, start: Any, size: Any = ABSENT) -> Value:
    first = count(start)
    length = INT64_MAX if size is ABSENT else count(size)
    if array.__class__ is not list or first is None or length is None:
        return UNDEFINED
    if first < 0:
        first = max(len(array) + first, 0)
    return array[first : first + length] if length > 0 else []


# Containing.


def array_contains(array: Any, value: Any, is_partial: Any = False) -> Value:
    if array.__class__ is not list or value is UNDEFINED or is_partial.__class__ is not bool:
        return UNDEFINED
    if is_partial and value.__class__ is dict:
        return any(_holds(element, value) for element in array)
    return any(equal(element, value) for element in array)


def _holds(held: Any, part: dict[str, Any]) -> bool:
    """Whether an object has every property of another. One level: the values of the properties compare fully."""
    if held.__class__ is not dict:
        return False
    return all(name in held and equal(held[name], value) for name, value in part.items())


def _contained(array: Any, values: Sequence[Any]) -> list[Value]:
    if len(values) <= _FEW or array.__class__ is not list:
        return [array_contains(array, value) for value in values]
    elements = _distinct(array)
    return [UNDEFINED if value is UNDEFINED else _key(value) in elements for value in values]


def array_contains_all(array: Any, *values: Any) -> Value:
    found = _contained(array, values)
    if False in found:
        return False
    return UNDEFINED if UNDEFINED in found else True


def array_contains_any(array: Any, *values: Any) -> Value:
    found = _contained(array, values)
    if True in found:
        return True
    return UNDEFINED if UNDEFINED in found else False


# One value out of many.


def _numbers(array: Any) -> list[float] | None:
    if array.__class__ is not list or not all(element.__class__ in NUMBERS for element in array):
        return None
    return [as_double(element) for element in array]


def array_sum(array: Any) -> Value:
    numbers = _numbers(array)
    return UNDEFINED if numbers is None else number(sum(numbers))


def array_average(array: Any) -> Value:
    numbers = _numbers(array)
    return number(sum(numbers) / len(numbers)) if numbers else UNDEFINED


def array_median(array: Any) -> Value:
    numbers = _numbers(array)
    if not numbers:
        return UNDEFINED
    numbers.sort()
    middle = len(numbers) // 2
    return number(numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2)


def _extreme(choose: Callable[..., Any]) -> Callable[..., Value]:
    key = cmp_to_key(compare)

    def call(array: Any) -> Value:
        if array.__class__ is not list or not array or any(element.__class__ in _NESTED for element in array):
            return UNDEFINED
        return choose(array, key=key)  # type: ignore[no-any-return]

    return call


array_min = _extreme(min)
array_max = _extreme(max)


def choose(position: Any, *choices: Any) -> Value:
    place = whole(position)
    if place is None or not 1 <= place <= len(choices):
        return UNDEFINED
    return choices[place - 1]  # type: ignore[no-any-return]


# Sets.


def _key(value: Any) -> Hashable:
    """Equal exactly for equal values, and hashable, so that sets of thousands of objects take no thousands squared."""
    kind = value.__class__
    if kind is str or value is None:
        return value  # type: ignore[no-any-return]
    return encode_value(value)


def _distinct(array: Sequence[Any]) -> dict[Hashable, Any]:
    distinct: dict[Hashable, Any] = {}
    for element in array:
        distinct.setdefault(_key(element), element)
    return distinct


def set_union(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    return list(_distinct(first + second).values())


def set_intersect(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    others = _distinct(first)
    return [element for key, element in _distinct(second).items() if key in others]


def set_difference(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    others = _distinct(second)
    return [element for key, element in _distinct(first).items() if key not in others]


def set_equal(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    return _distinct(first).keys() == _distinct(second).keys()


# Objects.


def object_to_array(given: Any, name_property: Any = "k", value_property: Any = "v") -> Value:
    if given.__class__ is not dict or name_property.__class__ is not str or value_property.__class__ is not str:
        return UNDEFINED
    return [{name_property: name, value_property: value} for name, value in given.items()]
