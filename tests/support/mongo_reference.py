"""MongoDB's filters, sorts and updates once more, slowly and as the rules are written: an oracle for random tests.

Nothing is compiled and nothing is shared with the product but the names of its types; values are compared pair by pair.
"""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128, create_decimal128_context
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex


class Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


class Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


# The order of values.

_RANKS: list[tuple[Any, ...]] = [
    (MinKey,),
    (type(None), Nothing),
    (int, float, Int64, Decimal128),
    (str,),
    (dict,),
    (list,),
    (bytes,),
    (ObjectId,),
    (bool,),
    (DatetimeMS,),
    (Regex,),
    (MaxKey,),
]


def rank(value: Any) -> int:
    return next(place for place, kinds in enumerate(_RANKS) if type(value) in kinds)


def is_number(value: Any) -> bool:
    return type(value) in _RANKS[2]


def is_nan(value: Any) -> bool:
    return (type(value) is float and math.isnan(value)) or (type(value) is Decimal128 and value.to_decimal().is_nan())


def _infinity(value: Any) -> int:
    if type(value) is float and math.isinf(value):
        return 1 if value > 0 else -1
    if type(value) is Decimal128 and value.to_decimal().is_infinite():
        return 1 if value.to_decimal() > 0 else -1
    return 0


def _fraction(value: Any) -> Fraction:
    return Fraction(value.to_decimal()) if type(value) is Decimal128 else Fraction(value)


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def order(left: Any, right: Any) -> int:
    """-1, 0 or 1."""
    if rank(left) != rank(right):
        return _sign(rank(left), rank(right))
    if is_number(left):
        if is_nan(left) or is_nan(right):
            return _sign(not is_nan(left), not is_nan(right))
        if _infinity(left) or _infinity(right):
            return _sign(_infinity(left), _infinity(right))
        return _sign(_fraction(left), _fraction(right))
    if isinstance(left, dict):
        for (name, one), (other_name, other) in zip(left.items(), right.items(), strict=False):
            found = _sign(rank(one), rank(other)) or _sign(name, other_name) or order(one, other)
            if found:
                return found
        return _sign(len(left), len(right))
    if isinstance(left, list):
        for one, other in zip(left, right, strict=False):
            if found := order(one, other):
                return found
        return _sign(len(left), len(right))
    if isinstance(left, bytes):
        return _sign(len(left), len(right)) or _sign(left, right)
    if isinstance(left, (str, bool, ObjectId)):
        return _sign(left, right)
    if isinstance(left, DatetimeMS):
        return _sign(int(left), int(right))
    if isinstance(left, Regex):
        return _sign((left.pattern, left.flags), (right.pattern, right.flags))
    return 0


# Paths.


def leads_to(value: Any, parts: list[str]) -> Iterator[tuple[Any, bool]]:
    """The values at a path, and whether an array among them also stands for its elements."""
    found = value.get(parts[0], NOTHING)
    if len(parts) == 1:
        yield found, True
    elif isinstance(found, dict):
        yield from leads_to(found, parts[1:])
    elif isinstance(found, list):
        yield from _inside(found, parts[1:])
    else:
        yield NOTHING, True


def _inside(array: list[Any], parts: list[str]) -> Iterator[tuple[Any, bool]]:
    for index, each in enumerate(array):
        if isinstance(each, dict):
            yield from leads_to(each, parts)
        if str(index) == parts[0]:
            if len(parts) == 1:
                yield each, False
            elif isinstance(each, dict):
                yield from leads_to(each, parts[1:])
            elif isinstance(each, list):
                yield from _inside(each, parts[1:])


def _as_document(value: Any) -> Any:
    return {str(index): each for index, each in enumerate(value)} if isinstance(value, list) else value


def holds(document: Any, path: str, test: Callable[[Any], bool], *, unwinds: bool = True) -> bool:
    for value, is_array_of_values in leads_to(document, path.split(".")):
        if unwinds and is_array_of_values and isinstance(value, list) and any(test(each) for each in value):
            return True
        if test(value):
            return True
    return False


# Filters.


def matches(given: dict[str, Any], document: Any) -> bool:
    for name, operand in given.items():
        if name == "$and":
            result = all(matches(each, document) for each in operand)
        elif name == "$or":
            result = any(matches(each, document) for each in operand)
        elif name == "$nor":
            result = not any(matches(each, document) for each in operand)
        elif _is_operators(operand):
            result = _all_operators(
                operand, lambda test, unwinds=True, at=name: holds(document, at, test, unwinds=unwinds)
            )
        elif isinstance(operand, Regex):
            result = holds(document, name, functools.partial(_fits, operand))
        else:
            result = holds(document, name, functools.partial(_equal, wanted=operand))
        if not result:
            return False
    return True


def _is_operators(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and next(iter(value)).startswith("$")


def _equal(value: Any, wanted: Any) -> bool:
    return order(value, wanted) == 0


def _fits(pattern: Regex[Any], value: Any) -> bool:
    if isinstance(value, str):
        return re.search(pattern.pattern, value, pattern.flags) is not None
    return isinstance(value, Regex) and (value.pattern, value.flags) == (pattern.pattern, pattern.flags)


Quantify = Callable[..., bool]  # of a test: whether it holds for any of the values that are meant


def _all_operators(operators: dict[str, Any], any_value: Quantify) -> bool:
    return all(_operator(name, operand, any_value) for name, operand in operators.items())


def _operator(name: str, operand: Any, any_value: Quantify) -> bool:
    match name:
        case "$eq":
            return any_value(lambda value: _equal(value, operand))
        case "$ne":
            return not any_value(lambda value: _equal(value, operand))
        case "$in":
            return any(_operator("$fits", each, any_value) for each in operand)
        case "$nin":
            return not any(_operator("$fits", each, any_value) for each in operand)
        case "$fits":
            if isinstance(operand, Regex):
                return any_value(lambda value: _fits(operand, value))
            return any_value(lambda value: _equal(value, operand))
        case "$gt" | "$gte" | "$lt" | "$lte":
            return any_value(lambda value: _compares(name, value, operand))
        case "$exists":
            return any_value(lambda value: value is not NOTHING) == bool(operand)
        case "$type":
            return any_value(lambda value: _has_type(value, operand))
        case "$size":
            return any_value(lambda value: isinstance(value, list) and len(value) == operand, unwinds=False)
        case "$mod":
            return any_value(lambda value: _leaves(value, *operand))
        case "$all":
            return bool(operand) and all(
                _all_operators(each, any_value) if _is_operators(each) else _operator("$fits", each, any_value)
                for each in operand
            )
        case "$elemMatch":
            return any_value(
                lambda value: isinstance(value, list) and any(_element(operand, each) for each in value), unwinds=False
            )
        case "$not":
            if isinstance(operand, Regex):
                return not any_value(lambda value: _fits(operand, value))
            return not _all_operators(operand, any_value)
        case "$regex":
            return any_value(lambda value: _fits(Regex(operand, 0), value))
    raise AssertionError(name)


def _element(query: dict[str, Any], element: Any) -> bool:
    if _is_operators(query) and next(iter(query)) not in ("$and", "$or", "$nor"):
        return _all_operators(query, lambda test, unwinds=True: test(element))
    return isinstance(element, (dict, list)) and matches(query, _as_document(element))


def _compares(name: str, value: Any, operand: Any) -> bool:
    includes = name in ("$gte", "$lte")
    if operand is None:
        return includes and (value is None or value is NOTHING)
    if isinstance(operand, (MinKey, MaxKey)) and type(value) is not type(operand):
        return (name in ("$gt", "$gte")) == isinstance(operand, MinKey)
    if value is NOTHING or rank(value) != rank(operand):
        return False
    if is_nan(value) or is_nan(operand):
        return includes and is_nan(value) and is_nan(operand)
    found = order(value, operand)
    return (includes and found == 0) or found == (1 if name in ("$gt", "$gte") else -1)


_TYPES: dict[str, tuple[Any, ...]] = {
    "double": (float,),
    "string": (str,),
    "object": (dict,),
    "array": (list,),
    "bool": (bool,),
    "null": (type(None),),
    "int": (int,),
    "long": (Int64,),
    "decimal": (Decimal128,),
    "date": (DatetimeMS,),
    "objectId": (ObjectId,),
    "number": (int, float, Int64, Decimal128),
}


def _has_type(value: Any, names: Any) -> bool:
    return any(type(value) in _TYPES[name] for name in (names if isinstance(names, list) else [names]))


def _leaves(value: Any, divisor: int, remainder: int) -> bool:
    if not is_number(value) or is_nan(value) or _infinity(value):
        return False
    number = math.trunc(_fraction(value))
    return abs(number) < 2**63 and math.fmod(number, divisor) == remainder


# Sorts.


def sort_values(document: Any, parts: list[str]) -> list[Any]:
    """The values that a document is sorted by, one of them: EMPTY stands for an array without elements."""
    if not parts:
        if isinstance(document, list):
            return list(document) if document else [EMPTY]
        return [None if document is NOTHING else document]
    if isinstance(document, dict):
        return sort_values(document.get(parts[0], NOTHING), parts[1:])
    if isinstance(document, list):
        if parts[0].isdigit():
            index = int(parts[0])
            return sort_values(document[index] if index < len(document) else NOTHING, parts[1:])
        if not document:
            return [None]
        return [
            value for each in document for value in (sort_values(each, parts) if isinstance(each, dict) else [None])
        ]
    return [None]


class _Empty:
    pass


EMPTY = _Empty()


def _sort_order(left: Any, right: Any) -> int:
    ranks = [1 if value is EMPTY else 0 if isinstance(value, MinKey) else 2 for value in (left, right)]
    return _sign(*ranks) or (0 if left is EMPTY else order(left, right))


def sorted_by(documents: list[Any], path: str, direction: int) -> list[Any]:
    def chosen(document: Any) -> Any:
        values = sort_values(document, path.split("."))
        best = functools.reduce(lambda one, other: one if _sort_order(one, other) * direction <= 0 else other, values)
        return best

    by_order = functools.cmp_to_key(lambda left, right: _sort_order(chosen(left), chosen(right)) * direction)
    return sorted(documents, key=by_order)


# Updates.

_NUMBER_RANKS = {int: 0, Int64: 1, float: 2, Decimal128: 3}


def updated(given: dict[str, Any], document: dict[str, Any], filters: dict[str, Any], matched: int | None) -> Any:
    """The document afterwards; refused with the code of the first operator that cannot be applied."""
    changes: list[tuple[list[str], str, Any]] = []
    _no_conflicts([path.split(".") for fields in given.values() for path in fields])
    for operator, fields in given.items():
        for path, operand in fields.items():
            if operator == "$rename":
                changes.append((path.split("."), "taken", operand))
                changes.append((operand.split("."), "renamed", path))
            else:
                changes += [(parts, operator, operand) for parts in _meant(document, path.split("."), filters, matched)]
    _no_conflicts([parts for parts, _, _ in changes])
    changes.sort(key=lambda change: [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in change[0]])
    result = copy.deepcopy(document)
    for parts, operator, operand in changes:
        _change(result, parts, operator, operand, document)
    if "_id" in document and order(result.get("_id", NOTHING), document["_id"]) != 0:
        raise Refused(66)
    return result


def _no_conflicts(paths: list[list[str]]) -> None:
    for place, parts in enumerate(paths):
        for other in paths[:place]:
            size = min(len(parts), len(other))
            if parts[:size] == other[:size]:
                raise Refused(40)
            first, second = next(pair for pair in zip(parts, other, strict=False) if pair[0] != pair[1])
            if first.startswith("$[") != second.startswith("$["):
                raise Refused(40)


def _meant(document: Any, parts: list[str], filters: dict[str, Any], matched: int | None) -> Iterator[list[str]]:
    def expand(value: Any, before: list[str], rest: list[str]) -> Iterator[list[str]]:
        if not rest:
            yield before
            return
        part = rest[0]
        if part == "$":
            if matched is None:
                raise Refused(2)
            part = str(matched)
        elif part.startswith("$["):
            if not isinstance(value, list):
                raise Refused(2)
            name = part[2:-1]
            for index, each in enumerate(value):
                if not name or matches(filters[name], {name: each}):
                    yield from expand(each, [*before, str(index)], rest[1:])
            return
        below: Any = NOTHING
        if isinstance(value, dict):
            below = value.get(part, NOTHING)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            below = value[int(part)]
        yield from expand(below, [*before, part], rest[1:])

    yield from expand(document, [], parts)


def _lookup(document: Any, parts: list[str]) -> Any:
    for part in parts:
        if isinstance(document, dict):
            document = document.get(part, NOTHING)
        elif isinstance(document, list) and part.isdigit():
            document = document[int(part)] if int(part) < len(document) else NOTHING
        else:
            return NOTHING
    return document


def _change(result: dict[str, Any], parts: list[str], operator: str, operand: Any, original: dict[str, Any]) -> None:
    old = _lookup(result, parts)
    if operator == "taken":
        _no_arrays(original, parts)
        _check_reachable(original, parts)
        operator, operand = "$unset", ""
    if operator == "renamed":
        source = _lookup(original, operand.split("."))
        if source is NOTHING:
            return
        _no_arrays(original, parts)
        operator, operand = "$set", source
    if operator == "$unset":
        holder = _lookup(result, parts[:-1])
        if isinstance(holder, dict):
            holder.pop(parts[-1], None)
        elif old is not NOTHING:
            holder[int(parts[-1])] = None
        return
    if old is NOTHING and operator in ("$pull", "$pullAll", "$pop"):
        _check_reachable(result, parts)
        return
    new = _modified(operator, old, operand)
    holder = result
    for part in parts[:-1]:
        holder = _step(holder, part)
    if isinstance(holder, dict):
        holder[parts[-1]] = new
    elif isinstance(holder, list) and parts[-1].isdigit():
        index = int(parts[-1])
        holder.extend([None] * (index + 1 - len(holder)))
        holder[index] = new
    else:
        raise Refused(28)


def _check_reachable(document: Any, parts: list[str]) -> None:
    """Something could be put where the path leads to."""
    for part in parts:
        if document is NOTHING:
            return
        if not isinstance(document, dict) and not (isinstance(document, list) and part.isdigit()):
            raise Refused(28)
        document = _lookup(document, [part])


def _no_arrays(document: Any, parts: list[str]) -> None:
    if any(isinstance(_lookup(document, parts[:size]), list) for size in range(1, len(parts))):
        raise Refused(2)


def _step(holder: Any, part: str) -> Any:
    if isinstance(holder, dict):
        return holder.setdefault(part, {})
    if isinstance(holder, list) and part.isdigit():
        index = int(part)
        if index >= len(holder):
            holder.extend([None] * (index - len(holder)))
            holder.append({})
        return holder[index]
    raise Refused(28)


def _modified(operator: str, old: Any, operand: Any) -> Any:
    match operator:
        case "$set":
            return operand
        case "$inc" | "$mul":
            return _arithmetic(operator, old, operand)
        case "$min" | "$max":
            if old is NOTHING:
                return operand
            return operand if order(operand, old) == (-1 if operator == "$min" else 1) else old
        case "$push":
            return _pushed(_array(old, 2), operand)
        case "$addToSet":
            array = _array(old, 2)
            added = operand["$each"] if isinstance(operand, dict) and "$each" in operand else [operand]
            for each in added:
                if not any(order(each, other) == 0 for other in array):
                    array = [*array, each]
            return array
        case "$pop":
            array = _array(old, 14)
            return array[:-1] if operand == 1 else array[1:]
        case "$pullAll":
            return [each for each in _array(old, 2) if not any(order(each, other) == 0 for other in operand)]
        case "$pull":
            return [each for each in _array(old, 2) if not _is_pulled(operand, each)]
    raise AssertionError(operator)


def _array(old: Any, code: int) -> list[Any]:
    if old is NOTHING:
        return []
    if not isinstance(old, list):
        raise Refused(code)
    return old


def _is_pulled(operand: Any, element: Any) -> bool:
    if _is_operators(operand):
        return matches({"v": operand}, {"v": element})
    if isinstance(operand, dict):
        return isinstance(element, dict) and matches(operand, element)
    return order(operand, element) == 0


def _pushed(array: list[Any], operand: Any) -> list[Any]:
    clauses: dict[str, Any] = operand if isinstance(operand, dict) and "$each" in operand else {"$each": [operand]}
    added = clauses["$each"]
    place = clauses.get("$position", len(array))
    place = max(0, len(array) + place) if place < 0 else place
    result = [*array[:place], *added, *array[place:]]
    if "$sort" in clauses:
        direction = clauses["$sort"]
        result.sort(key=functools.cmp_to_key(lambda left, right: order(left, right) * direction))
    if "$slice" in clauses:
        limit = clauses["$slice"]
        result = result[:limit] if limit >= 0 else result[limit:]
    return result


def _arithmetic(operator: str, old: Any, operand: Any) -> Any:
    if old is NOTHING:
        if operator == "$inc":
            return operand
        return Decimal128("0") if type(operand) is Decimal128 else type(operand)(0)
    if not is_number(old):
        raise Refused(14)
    kind = max(_NUMBER_RANKS[type(old)], _NUMBER_RANKS[type(operand)])
    if kind == 3:
        context = create_decimal128_context()
        left, right = (
            value.to_decimal()
            if type(value) is Decimal128
            else Decimal(f"{value:.14e}" if type(value) is float else value)
            for value in (old, operand)
        )
        return Decimal128(context.add(left, right) if operator == "$inc" else context.multiply(left, right))
    result = old + operand if operator == "$inc" else old * operand
    if kind == 2:
        return float(result)
    if not -(2**63) <= result < 2**63:
        raise Refused(2)
    return Int64(result) if kind == 1 or not -(2**31) <= result < 2**31 else int(result)


def _decimal(value: Any) -> Decimal:
    if type(value) is Decimal128:
        return value.to_decimal()
    return Decimal(f"{value:.14e}") if type(value) is float else Decimal(int(value))
