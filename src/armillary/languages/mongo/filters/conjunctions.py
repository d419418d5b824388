"""What captures record of a filter: the conditions on fields that all hold, and the shape of the filter. Both are made
of the filter as the client has sent it. The conditions that indexes search for (`languages/mongo/indexes`) say the same
in ways that no other program reads: a field may be an array, and keys are bytes.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from armillary.languages.mongo.filters.matching import is_operators
from armillary.languages.mongo.paths import split
from armillary.model.bson.bson_values import Document
from armillary.model.indexes.index_paths import path_text
from armillary.model.values import UNDEFINED
from armillary.query.conditions import And, Condition, Equal, In, Range

_ORDERS: Final = frozenset(("$gt", "$gte", "$lt", "$lte"))
_DEPTH_MAX: Final = 8
_WIDTH_MAX: Final = 64  # members of one level of a filter that its shape has


def conjunction_of(given: Document) -> Condition:
    """An AND of equalities, lists and ranges; what a filter says beside them is left out."""
    found: list[Condition] = []
    pending: list[Document] = [given]
    while pending:
        each = pending.pop()
        for name, operand in each.items():
            if name == "$and" and isinstance(operand, list):
                pending += [part for part in operand if isinstance(part, dict)]
            elif not name.startswith("$"):
                found += _of_field(field_path(name), operand)
    return And(tuple(found))


def _of_field(path: str, operand: Any) -> list[Condition]:
    operators = operand if is_operators(operand) else {"$eq": operand}
    found: list[Condition] = []
    for name, value in operators.items():
        if name == "$eq" and _is_scalar(value):
            found.append(Equal(path, value))
        elif name == "$in" and isinstance(value, list) and all(map(_is_scalar, value)):
            found.append(In(path, tuple(value)))
        elif name in _ORDERS:
            found.append(Range(path, UNDEFINED, UNDEFINED))
    return found


def field_path(field: str) -> str:
    """`a.b` as `/a/b`."""
    return path_text(split(field))


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def shape_of(given: Document) -> str:
    """The filter with its constants taken out: filters of one shape differ in values only."""
    return orjson.dumps(_shape(given, 0)).decode()


def _shape(value: Any, depth: int) -> Any:
    if depth >= _DEPTH_MAX:
        return "?"
    if isinstance(value, dict):
        some = list(value.items())[:_WIDTH_MAX]
        return {name: _shape(member, depth + 1) for name, member in some}
    if isinstance(value, list):
        # Of lists of values the length is a constant too; lists of filters are part of the shape.
        parts = [_shape(each, depth + 1) for each in value[:_WIDTH_MAX] if isinstance(each, dict)]
        return parts or ["?"]
    return "?"
