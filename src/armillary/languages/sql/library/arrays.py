"""Array, set and object functions. Elements are compared deeply; a set is an array without duplicates, in the order of
first occurrence. Repeated lookups in a long array use hashing (`membership.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import chain
from typing import Any, Final

from armillary import limits
from armillary.languages.sql.library.membership import CHUNK, FEW, contains, contains_part, distinct
from armillary.languages.sql.library.numbers import ABSENT, INT64_MAX, NUMBERS, count, number, whole
from armillary.model.values import UNDEFINED, Value, as_double, compare
from armillary.work import make, sorted_values, spend

_NESTED = (list, dict)
_SHORT: Final = 64  # elements; shorter arrays are not charged for
_ELEMENT_BYTES: Final = 8
_PAIR_BYTES: Final = 300  # memory of an object with two properties


def _counted(array: list[Any]) -> list[Any]:
    if len(array) > _SHORT:
        make(_ELEMENT_BYTES * len(array))
    return array


def array_concat(*arrays: Any) -> Value:
    if not all(array.__class__ is list for array in arrays):
        return UNDEFINED
    size = sum(map(len, arrays))
    if size > limits.ITEM_BYTES_MAX:
        return UNDEFINED  # no item has more elements than bytes; the limit protects memory
    if size > _SHORT:
        make(_ELEMENT_BYTES * size)
        spend(size >> 4)
    return list(chain(*arrays))


def array_length(array: Any) -> Value:
    return len(array) if array.__class__ is list else UNDEFINED


def array_slice(array: Any, start: Any, size: Any = ABSENT) -> Value:
    first = count(start)
    length = INT64_MAX if size is ABSENT else count(size)
    if array.__class__ is not list or first is None or length is None:
        return UNDEFINED
    if first < 0:
        first = max(len(array) + first, 0)
    return _counted(array[first : first + length]) if length > 0 else []


# Membership.


def array_contains(array: Any, value: Any, is_partial: Any = False) -> Value:
    if array.__class__ is not list or value is UNDEFINED or is_partial.__class__ is not bool:
        return UNDEFINED
    if is_partial and value.__class__ is dict:
        return contains_part(array, value)
    return contains(array, value)


def _contained(array: Any, values: Sequence[Any]) -> list[Value]:
    if array.__class__ is not list:
        return [UNDEFINED] * len(values)
    is_many = len(values) > FEW
    return [UNDEFINED if value is UNDEFINED else contains(array, value, is_asked_often=is_many) for value in values]


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


# Aggregates and elements.


def _numbers(array: Any) -> list[float] | None:
    if array.__class__ is not list:
        return None
    numbers: list[float] = []
    for start in range(0, len(array), CHUNK):
        piece = array[start : start + CHUNK]
        spend(2 * len(piece))
        if not all(element.__class__ in NUMBERS for element in piece):
            return None
        numbers += [as_double(element) for element in piece]
    return numbers


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
    numbers = sorted_values(numbers)
    middle = len(numbers) // 2
    return number(numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2)


def _extreme(choose: Callable[..., Any]) -> Callable[..., Value]:
    key = cmp_to_key(compare)

    def call(array: Any) -> Value:
        if array.__class__ is not list or not array:
            return UNDEFINED
        spend(len(array) >> 1)
        if any(element.__class__ in _NESTED for element in array):
            return UNDEFINED
        best: Any = array[0]
        for start in range(0, len(array), CHUNK):
            piece = array[start : start + CHUNK]
            spend(6 * len(piece))
            best = choose([best, *piece], key=key)
        return best  # type: ignore[no-any-return]

    return call


array_min = _extreme(min)
array_max = _extreme(max)


def choose(position: Any, *choices: Any) -> Value:
    place = whole(position)
    if place is None or not 1 <= place <= len(choices):
        return UNDEFINED
    return choices[place - 1]  # type: ignore[no-any-return]


# Sets.


def set_union(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    known = distinct(first)
    return _counted([*known.values(), *_chosen(distinct(second), known, are_known=False)])


def set_intersect(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    return _counted(_chosen(distinct(second), distinct(first), are_known=True))


def set_difference(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    return _counted(_chosen(distinct(first), distinct(second), are_known=False))


def _chosen(these: dict[Any, Any], known: dict[Any, Any], *, are_known: bool) -> list[Any]:
    """The elements of an array that are in another one, or those that are not, without duplicates."""
    chosen: list[Any] = []
    for place, (key, element) in enumerate(these.items()):
        if place % CHUNK == 0:
            spend(min(CHUNK, len(these) - place))
        if (key in known) is are_known:
            chosen.append(element)
    return chosen


def set_equal(first: Any, second: Any) -> Value:
    if first.__class__ is not list or second.__class__ is not list:
        return UNDEFINED
    spend(len(first))
    return distinct(first).keys() == distinct(second).keys()


# Objects.


def object_to_array(given: Any, name_property: Any = "k", value_property: Any = "v") -> Value:
    if given.__class__ is not dict or name_property.__class__ is not str or value_property.__class__ is not str:
        return UNDEFINED
    make(_PAIR_BYTES * len(given))
    spend(2 * len(given))
    return [{name_property: name, value_property: value} for name, value in given.items()]
