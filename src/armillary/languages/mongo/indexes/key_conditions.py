"""The part of a filter that a collection's own indexes can use: for each field, key ranges of which every matching
document has a key in one (`model/indexes/field_indexes.py`). Conditions for the container's index are in
`index_conditions.py`.

Two operators on one field may be met by different elements of an array, so each is a condition of its own; if no
document has several keys, the conditions are joined when an index is chosen. Missing fields have the key of null.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Final

from bson.code import Code
from bson.dbref import DBRef
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.regex import Regex

from armillary import limits
from armillary.languages.mongo.filters.comparisons import is_nan
from armillary.languages.mongo.filters.matching import is_operators
from armillary.languages.mongo.filters.text_search import TextQuery
from armillary.languages.mongo.filters.value_types import truth
from armillary.languages.mongo.indexes.index_conditions import filter_condition, prefix_of
from armillary.languages.mongo.indexes.planar_indexes import planar_condition
from armillary.languages.mongo.indexes.special_indexes import place_condition, word_condition
from armillary.languages.mongo.paths import index_of, split
from armillary.model.bson import bson_order
from armillary.model.bson.bson_order import EMPTY_BYTES, NULL_BYTES, class_bounds, order_bytes, order_class
from armillary.model.bson.bson_values import TYPE_ALIASES, Document, to_decimal
from armillary.model.indexes.field_indexes import Requirements
from armillary.model.layout import prefix_end
from armillary.query.conditions import ALL, Condition, Keyed, KeyRange, KeyRanges, both, either, intersected, united
from armillary.work import spend

_LOGICAL: Final = ("$and", "$or", "$nor", "$expr", "$where", "$text", "$jsonSchema")
_TYPE_CLASSES: Final = {
    1: bson_order.NUMBER,
    2: bson_order.STRING,
    3: bson_order.OBJECT,
    5: bson_order.BINARY,
    7: bson_order.OBJECT_ID,
    8: bson_order.BOOL,
    9: bson_order.DATE,
    11: bson_order.REGEX,
    13: bson_order.CODE,
    14: bson_order.STRING,
    15: bson_order.CODE_WITH_SCOPE,
    16: bson_order.NUMBER,
    17: bson_order.TIMESTAMP,
    18: bson_order.NUMBER,
    19: bson_order.NUMBER,
    -1: bson_order.MIN_KEY,
    127: bson_order.MAX_KEY,
}

_ALL_MAX: Final = 100  # values of `$all` that an index searches for


def usable_condition(
    given: Document,
    *,
    is_collated: bool = False,
    single_paths: Collection[str] = (),
    indexed: Collection[str] | None = None,
    text: TextQuery | None = None,
) -> Condition:
    """The conditions of a compiled filter for all kinds of indexes. For `single_paths` and `indexed` see
    `filter_condition`.
    """
    plain = filter_condition(given, is_collated=is_collated, single_paths=single_paths, indexed=indexed)
    return both([plain, key_condition(given, is_collated=is_collated, text=text)])


def key_condition(given: Document, *, is_collated: bool = False, text: TextQuery | None = None) -> Condition:
    return _query(given, "", is_collated, text)


def required_keys(given: Document) -> Requirements | None:
    """For the filter of a partial index, key ranges by field, such that a document with a key in each of them is in the
    index. None if keys cannot decide it.
    """
    required: list[tuple[str, tuple[tuple[bytes, bytes], ...]]] = []
    for name, operand in given.items():
        if name == "$and":
            for each in operand:
                inner = required_keys(each)
                if inner is None:
                    return None
                required += inner
            continue
        if name.startswith("$") or any(index_of(part) >= 0 for part in split(name)):
            return None
        operators = operand if is_operators(operand) else {"$eq": operand}
        for operator, value in operators.items():
            ranges = _telling(operator, value, operators)
            if ranges is None:
                return None
            required.append((name, tuple([(each.low, each.high) for each in ranges])))
    return tuple(required)


def _telling(operator: str, value: Any, beside: Document) -> KeyRanges | None:
    """The exact key ranges of the values for which an operator holds; None if there are none."""
    if operator == "$exists" and truth(value):
        return (KeyRange(b"", NULL_BYTES), KeyRange(prefix_end(NULL_BYTES), b"\xff"))
    if operator not in ("$eq", "$in", "$gt", "$gte", "$lt", "$lte", "$type"):
        return None
    for each in value if operator == "$in" else [value]:
        if isinstance(each, (list, Regex)) and operator != "$type":
            return None
    return _ranges(operator, value, beside, False)


def _query(given: Document, prefix: str, is_collated: bool, text: TextQuery | None = None) -> Condition:
    parts: list[Condition] = []
    for name, operand in given.items():
        if name == "$and":
            parts += [_query(each, prefix, is_collated, text) for each in operand]
        elif name == "$or":
            parts.append(either([_query(each, prefix, is_collated, text) for each in operand]))
        elif name == "$text" and text is not None:
            parts.append(word_condition(text))
        elif not name.startswith("$"):
            parts.append(_field(prefix + name, operand, is_collated))
    return both(parts)


def _field(path: str, operand: Any, is_collated: bool) -> Condition:
    if any(index_of(part) >= 0 for part in split(path)):
        return ALL  # a number may be a field name or an array index
    if not is_operators(operand):
        operand = {"$regex" if isinstance(operand, Regex) else "$eq": operand}
    places = (place_condition(path, operand), planar_condition(path, operand))
    parts: list[Condition] = [place for place in places if place is not None]
    for name, value in operand.items():
        if isinstance(value, DBRef) and name == "$elemMatch":
            continue
        if name == "$elemMatch" and not _is_of_values(value):
            parts.append(_query(value, f"{path}.", is_collated))
        elif name == "$all":
            parts += [_each_of_all(path, each, is_collated) for each in value[:_ALL_MAX]]
        else:
            ranges = _ranges(name, value, operand, is_collated)
            if ranges is not None:
                parts.append(Keyed(path, ranges))
    return both(parts)


def _each_of_all(path: str, operand: Any, is_collated: bool) -> Condition:
    if not is_operators(operand):
        return _field(path, operand, is_collated)
    return _field(path, {"$elemMatch": operand["$elemMatch"]}, is_collated)


def _is_of_values(operand: Document) -> bool:
    return is_operators(operand) and next(iter(operand)) not in _LOGICAL


def _ranges(name: str, value: Any, beside: Document, is_collated: bool) -> KeyRanges | None:
    """The key ranges of an operator; None if it restricts no keys."""
    match name:
        case "$eq":
            return _equal(value, is_collated)
        case "$in" if len(value) > limits.MONGO_KEYED_VALUES_MAX:
            return None
        case "$in":
            ranges_of_all: list[KeyRange] = []
            for each in value:
                one = _regex(each, "") if isinstance(each, Regex) else _equal(each, is_collated)
                if one is None:
                    return None
                ranges_of_all += one
            return united(ranges_of_all)
        case "$gt" | "$gte" | "$lt" | "$lte":
            return _ordered(name, value, is_collated)
        case "$regex":
            return _regex(value, beside.get("$options", ""))
        case "$exists" if not truth(value):
            return (_point(NULL_BYTES),)
        case "$type":
            return _types(value if type(value) is list else [value])
        case "$mod" | "$bitsAllSet" | "$bitsAnySet" | "$bitsAllClear" | "$bitsAnyClear":
            return (_class(bson_order.NUMBER), _class(bson_order.BINARY))
        case "$elemMatch":
            ranges: KeyRanges | None = None
            for inner, operand in value.items():
                if inner == "$elemMatch":
                    continue  # about elements that are arrays, which have one key as a whole
                one = _ranges(inner, operand, value, is_collated)
                if one is not None:
                    ranges = one if ranges is None else intersected(ranges, one)
            return ranges
    return None


def _point(encoded: bytes) -> KeyRange:
    return KeyRange(encoded, prefix_end(encoded), True)


def _class(first_byte: int) -> KeyRange:
    return KeyRange(*class_bounds(first_byte))


def _equal(value: Any, is_collated: bool) -> KeyRanges | None:
    spend(30)
    if is_collated and isinstance(value, (str, dict, list, DBRef)):
        return None
    if type(value) is list:
        # An array is found by the key of its first element, an array inside an array by the key of the whole.
        first = EMPTY_BYTES if not value else order_bytes(value[0])
        return united([_point(first), _point(order_bytes(value))])
    return (_point(order_bytes(value)),)


def _ordered(name: str, value: Any, is_collated: bool) -> KeyRanges | None:
    if isinstance(value, (MinKey, MaxKey, list, Code)) or (is_collated and isinstance(value, (str, dict, DBRef))):
        return None
    encoded = order_bytes(value)
    if value is None or is_nan(value):
        return (_point(encoded),) if name in ("$gte", "$lte") else ()
    low, high = class_bounds(order_class(value))
    if low[0] == bson_order.NUMBER:
        low = prefix_end(order_bytes(math.nan))  # NaN sorts below all numbers but is not less than them
    match name:
        case "$gt":
            return (KeyRange(prefix_end(encoded), high),)
        case "$gte":
            return (KeyRange(encoded, high),)
        case "$lt":
            return (KeyRange(low, encoded),)
    return (KeyRange(low, prefix_end(encoded)),)


def _regex(operand: Any, options: str) -> KeyRanges:
    prefix = prefix_of(operand, options)
    strings = _class(bson_order.STRING)
    if prefix:
        encoded = order_bytes(prefix)[:-1]  # without the terminator of the string
        strings = KeyRange(encoded, prefix_end(encoded))
    return (strings, _class(bson_order.REGEX))


def _types(types: list[Any]) -> KeyRanges | None:
    classes: set[int] = set()
    for each in types:
        if each == "number":
            classes.add(bson_order.NUMBER)
            continue
        number = TYPE_ALIASES.get(each) if isinstance(each, str) else int(to_decimal(each))
        found = _TYPE_CLASSES.get(number) if number is not None else None
        if found is None:
            return None  # arrays have no key of their own, and null also means missing
        classes.add(found)
    return tuple([_class(each) for each in sorted(classes)])
