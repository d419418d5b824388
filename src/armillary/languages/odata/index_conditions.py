"""Translates filters to conditions that an index can use (`query/conditions.py`): one condition for "the filter is
true" and one for "it is false", which `not` exchanges. A comparison with a missing property, or with one of another
type, is neither, as in the service.
"""

from __future__ import annotations

import math

from armillary.languages.odata.lexer import Literal
from armillary.languages.odata.parser import And, Comparison, Expression, Flag, Not, Or
from armillary.model import edm
from armillary.model.indexes.index_paths import path_text
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Value
from armillary.query import conditions
from armillary.query.conditions import ALL, NOTHING, Condition, Defined, Equal, In, Range, both, either

OPPOSITES = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
KEY_PATHS = (path_text([edm.PARTITION_KEY]),)  # index paths of the partition key
_ID_PATH = path_text(["id"])
TIMESTAMP = "Timestamp"
_TS_PATH = path_text(["_ts"])


def condition_of(node: Expression, *, is_wanted: bool = True) -> Condition:
    """A condition that every entity meets for which the expression is true; or false, unless `is_wanted`."""
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
            return ALL  # every entity has both keys: the condition excludes none
        if name == "PartitionKey":
            return _text(KEY_PATHS[0], operator, text)
        # The item's id is the row key, except for the empty row key, which is stored under another id.
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
    # The index sorts by code points, filters compare UTF-16 code units. The two orders differ only for a constant that
    # has characters from U+D800 on.
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
    # A large integer is rounded to a double for the bound, which must be included: it may equal the stored value.
    includes = operator in ("ge", "le") or abs(number) > EXACT_INT_MAX
    return _numbers(path, _range(path, operator, float(number), includes=includes))


def _numbers(path: str, numbers: Condition) -> Condition:
    """Numbers in a range, and all texts as which numbers may be stored: the predicate tests those."""
    return either([numbers, Range(path, "-", ":", includes_high=False), In(path, tuple(edm.SPECIAL_DOUBLES))])


def _joined(parts: list[Condition]) -> list[Condition]:
    """The conditions with the number ranges on each path merged into one: a half-open range alone may cover half of all
    entities."""
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
