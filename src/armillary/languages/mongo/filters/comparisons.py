"""Tests of one value against an operand: `$eq`, `$lt`, `$in` and so on. A value may be MISSING, which equals null here.

Order comparisons hold only within one type bracket: all numbers are one bracket, and MinKey and MaxKey compare with
everything. `languages/mongo/paths.py` finds the values of a document to test.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex

from armillary.languages.mongo.errors import bad_value
from armillary.languages.mongo.filters.regexes import matcher_of
from armillary.languages.mongo.filters.value_types import number_of
from armillary.model.bson.bson_values import CLASS_ARRAY, CLASS_OBJECT, MISSING, Key, is_number, list_keys, order_key
from armillary.work import paced, portions, spend

Test = Callable[[Any], bool]
KeyFunction = Callable[[Any], Key]

_PLAIN_NUMBERS: Final = frozenset([int, float, Int64])


def is_nan(value: Any) -> bool:
    if type(value) is Decimal128:
        return value.to_decimal().is_nan()
    return type(value) is float and value != value


# Equality.


def equals(operand: Any, key: KeyFunction) -> Test:
    if operand is None:
        return is_null
    if is_number(operand):
        return is_nan if is_nan(operand) else _equals_number(number_of(operand))
    kind = type(operand)
    if kind is str and key is order_key:
        # Code is a subclass of str, but equals no string.
        return lambda value: type(value) is str and value == operand
    if kind is bool:
        return lambda value: value is operand
    if kind is ObjectId:
        return lambda value: type(value) is ObjectId and value == operand
    wanted = key(operand)
    if kind is list:
        # The type is compared first: most values are of another type, and keys of arrays and documents are long.
        return lambda value: type(value) is list and key(value) == wanted
    if kind is dict:
        return lambda value: (type(value) is dict or type(value) is DBRef) and key(value) == wanted
    return lambda value: key(value) == wanted


def is_null(value: Any) -> bool:
    return value is None or value is MISSING


def _equals_number(number: int | float | Decimal) -> Test:
    def test(value: Any) -> bool:
        kind = type(value)
        if kind in _PLAIN_NUMBERS:
            return value == number  # type: ignore[no-any-return]
        return kind is Decimal128 and not is_nan(value) and value.to_decimal() == number

    return test


# Order.

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$lt": operator.lt,
    "$lte": operator.le,
    "$gt": operator.gt,
    "$gte": operator.ge,
}


def ordered(name: str, operand: Any, key: KeyFunction, field: str) -> Test:
    """$lt, $lte, $gt or $gte."""
    compare = _ORDERS[name]
    is_inclusive = name.endswith("e")
    if operand is None:
        return is_null if is_inclusive else never
    if isinstance(operand, Regex):
        raise bad_value(f"Can't have RegEx as arg to predicate over field '{field}'.")
    if is_number(operand):
        if is_nan(operand):
            return is_nan if is_inclusive else never
        return _ordered_number(compare, number_of(operand))
    kind = type(operand)
    if kind is str and key is order_key:
        return lambda value: type(value) is str and compare(value, operand)
    if isinstance(operand, (MinKey, MaxKey)):
        return _ordered_by_end(operand, is_inclusive, is_above=name.startswith("$g"))
    wanted = key(operand)
    rank = wanted[0]

    def test(value: Any) -> bool:
        if value is MISSING or value is None:
            return False
        found = key(value)
        return found[0] == rank and compare(found, wanted)

    return test


def _ordered_number(compare: Callable[[Any, Any], bool], number: int | float | Decimal) -> Test:
    def test(value: Any) -> bool:
        kind = type(value)
        if kind in _PLAIN_NUMBERS:
            # NaN compares with nothing; comparing it with a Decimal would raise.
            return value == value and compare(value, number)
        return kind is Decimal128 and not is_nan(value) and compare(value.to_decimal(), number)

    return test


def _ordered_by_end(end: Any, is_inclusive: bool, is_above: bool) -> Test:
    kind = type(end)
    if is_above != (kind is MinKey):
        return (lambda value: type(value) is kind) if is_inclusive else never
    return always if is_inclusive else (lambda value: type(value) is not kind)


def never(_value: Any) -> bool:
    return False


def always(_value: Any) -> bool:
    return True


# Membership.


def among(operands: list[Any], key: KeyFunction) -> Test:
    """`$in`: equal to one of several values, or matching one of several regular expressions."""
    wanted: set[Any] = set()
    if key is order_key and all(all(type(each) is str for each in portion) for portion in portions(operands, 1)):
        for portion in portions(operands, 1):
            wanted.update(portion)
        return lambda value: type(value) is str and value in wanted
    patterns: list[Test] = []
    has_null = False
    for portion in portions(operands, 2):
        others = [each for each in portion if not isinstance(each, Regex)]
        if len(others) < len(portion):
            patterns += [regex_test(each) for each in portion if isinstance(each, Regex)]
        has_null = has_null or any(each is None for each in others)
        wanted.update(list_keys(others, key))

    has_containers = any(each[0] in (CLASS_ARRAY, CLASS_OBJECT) for each in paced(wanted, 1))

    def test(value: Any) -> bool:
        if value is MISSING:
            return has_null
        if not has_containers and (type(value) is list or type(value) is dict):
            return False  # the key of a large one takes long to make, and to hash in one piece
        return key(value) in wanted or any(matches(value) for matches in patterns)

    return test


# Regular expressions.


def regex_test(regex: Regex[Any]) -> Test:
    """Matches strings by the pattern, and regular expressions that are equal to the operand."""
    occurs_in = matcher_of(regex).occurs_in
    wanted = order_key(regex)

    def test(value: Any) -> bool:
        if type(value) is str:
            spend(5 + len(value) // 8)
            return occurs_in(value)
        return isinstance(value, Regex) and order_key(value) == wanted

    return test
