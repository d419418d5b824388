"""A filter as conditions that an index can use (`query/conditions.py`), with what holds when it is exactly false beside
what holds when it is exactly true: `not` changes the one for the other. A property that an entity lacks, or has with
another type, makes a comparison neither, as in the service.
"""

from __future__ import annotations

import math

from armillary.languages.odata.tree import And, Comparison, Expression, Flag, Literal, Not, Or
from armillary.model import edm
from armillary.model.indexes.index_paths import path_text
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Value
from armillary.query import conditions
from armillary.query.conditions import ALL, NOTHING, Condition, Defined, Equal, In, Range, both, either

OPPOSITES = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
KEY_PATHS = (path_text([edm.PARTITION_KEY]),)  # of the partition key
_ID_PATH = path_text(["id"])
TIMESTAMP = "Timestamp"
_TS_PATH = path_text(["_ts"])


def condition_of(node: Expression, *, is_wanted: bool = True) -> Condition:
    """What holds for an entity when the expression is exactly true; or, unless `is_wanted`, exactly false."""
    match node:
        case Not():
            return condition_of(node.operand, is_wanted=not is_wanted)
        case And() | Or():
            parts = [condition_of(operand, is_wanted=is_wanted) for operand in node.operands]
            return both(_joined(parts)) if isinstance(node, And) == is_wanted else either(parts)
        case Flag():
            return Equal(value_path(node.property), is_wanted)
        case Comparison():
            operator = node.operator if is_wanted else OPPOSITES[node.operator]
            return _comparison(node.property, operator, node.literal)


def value_path(name: str) -> str:
    return path_text([edm.member_name(name), "$v"])


def _comparison(name: str, operator: str, literal: Literal) -> Condition:
    if name in ("PartitionKey", "RowKey"):
        if literal.kind != edm.STRING:
            return NOTHING
        text = str(literal.value)
        if operator == "ne":
            return ALL  # everything has keys: an index has nothing to say
        if name == "PartitionKey":
            return _text(KEY_PATHS[0], operator, text)
        # The id is the row key, but for the empty one; whatever is beside that one is beside its id too.
        if operator == "eq":
            return Equal(_ID_PATH, edm.item_id(text))
        return _text(_ID_PATH, operator, text) if text else ALL
    if name == TIMESTAMP:
        return _written(operator, literal)
    path = value_path(name)
    value = literal.value
    if literal.is_number:
        assert isinstance(value, int | float)
        return _number(path, operator, value)
    match literal.kind:
        case edm.BOOLEAN:
            return Equal(path, value is (operator == "eq")) if operator in ("eq", "ne") else Defined(path)
        case edm.DATETIME:
            return _text(path, operator, edm.stored_ticks(int(value)))
        case edm.BINARY:
            assert isinstance(value, bytes)
            return Equal(path, edm.encode_binary(value)) if operator == "eq" else Defined(path)
    return _text(path, operator, str(value))


def _text(path: str, operator: str, text: str) -> Condition:
    if operator == "eq":
        return Equal(path, text)
    # The index is in the order of code points, filters go by code units. They differ above the surrogates only, and
    # only if the constant has such a character: others are below all of those either way.
    if operator == "ne" or has_high_characters(text):
        return Defined(path)
    return _range(path, operator, text, includes=operator in ("ge", "le"))


def has_high_characters(text: str) -> bool:
    return any(character >= "\ud800" for character in text)


def _number(path: str, operator: str, number: int | float) -> Condition:
    """Int32 and Double are numbers in the index, Int64 is text."""
    if operator == "ne" or not math.isfinite(number):
        return Defined(path)
    if operator == "eq":
        return In(path, (number, str(int(number)))) if number == int(number) else Equal(path, number)
    # A whole number that is no double has a neighbour for a bound, which may be the very value that is asked for.
    includes = operator in ("ge", "le") or abs(number) > EXACT_INT_MAX
    return _numbers(path, _range(path, operator, float(number), includes=includes))


def _numbers(path: str, numbers: Condition) -> Condition:
    """Numbers in a range, and all texts that a number may be kept as."""
    return either([numbers, Range(path, "-", ":", includes_high=False), In(path, tuple(edm.SPECIAL_DOUBLES))])


def _joined(parts: list[Condition]) -> list[Condition]:
    """Conditions that hold together, with ranges of numbers on one path made into one: each alone may be half of all
    there is."""
    joined: list[Condition] = []
    ranges: dict[str, list[Condition]] = {}
    for part in parts:
        numbers = part.parts[0] if isinstance(part, conditions.Or) else None
        if isinstance(numbers, Range) and part == _numbers(numbers.path, numbers):
            ranges.setdefault(numbers.path, []).append(numbers)
        else:
            joined.append(part)
    return joined + [_numbers(path, both(found)) for path, found in ranges.items()]


def _written(operator: str, literal: Literal) -> Condition:
    if literal.kind != edm.DATETIME or operator == "ne":
        return ALL
    seconds = (int(literal.value) - edm.ticks_of_s(0)) // edm.TICKS_PER_S
    if operator == "eq":
        return Equal(_TS_PATH, seconds)
    return _range(_TS_PATH, operator, seconds, includes=True)


def _range(path: str, operator: str, bound: Value, *, includes: bool) -> Condition:
    if operator in ("gt", "ge"):
        return Range(path, bound, UNDEFINED, includes_low=includes)
    return Range(path, UNDEFINED, bound, includes_high=includes)
