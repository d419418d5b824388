"""The fields of a collection's documents that a filter or a pipeline reads, so that the reader need not decode the
others. None means that all fields may be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from armillary.model.bson.bson_values import Document

Fields = frozenset[str] | None

_NOTHING: Final[Fields] = frozenset()
# Operators that read fields without naming them as `$name`.
_UNSEEN: Final = frozenset(
    "$getField $setField $unsetField $meta $function $accumulator $where $text $jsonSchema $near $nearSphere "
    "$top $topN $bottom $bottomN $sortArray".split()
)
_WHOLE: Final = ("$$ROOT", "$$CURRENT")


def filter_fields(given: Document) -> Fields:
    found: set[str] = set()
    for name, operand in given.items():
        if name in ("$and", "$or", "$nor"):
            below = _all_of(filter_fields(each) if type(each) is dict else None for each in operand)
        elif name == "$expr":
            below = expression_fields(operand)
        elif name == "$comment":
            below = _NOTHING
        elif name.startswith("$") or _is_unseen(operand):
            below = None
        else:
            below = frozenset((_first(name),))
        if below is None:
            return None
        found |= below
    return frozenset(found)


def expression_fields(spec: Any) -> Fields:
    """The fields that an expression reads, or any value with expressions inside."""
    kind = type(spec)
    if kind is str:
        return _reference(spec)
    if kind is list:
        return _all_of(expression_fields(each) for each in spec)
    if kind is dict:
        if spec.keys() & _UNSEEN:
            return None
        return _all_of(expression_fields(each) for each in spec.values())
    return _NOTHING


def pipeline_fields(stages: Iterable[Any]) -> Fields:
    """The fields that a pipeline reads, up to the first stage after which the original documents are out of sight."""
    found: set[str] = set()
    for stage in stages:
        [(name, spec)] = stage.items()
        below: Fields
        if name == "$match":
            below = filter_fields(spec)
        elif name in ("$skip", "$limit"):
            below = _NOTHING
        elif name in ("$group", "$bucket", "$sortByCount"):
            below = expression_fields(spec)
            return None if below is None else frozenset(found | below)
        elif name == "$count":
            return frozenset(found)
        else:
            return None
        if below is None:
            return None
        found |= below
    return None


def _reference(text: str) -> Fields:
    if not text.startswith("$"):
        return _NOTHING
    if not text.startswith("$$"):
        return frozenset((_first(text[1:]),))
    name, _, path = text.partition(".")
    if name in _WHOLE:
        return frozenset((_first(path),)) if path else None
    return _NOTHING


def _is_unseen(operand: Any) -> bool:
    return type(operand) is dict and bool(operand.keys() & _UNSEEN)


def _first(path: str) -> str:
    return path.partition(".")[0]


def _all_of(parts: Iterable[Fields]) -> Fields:
    found: set[str] = set()
    for each in parts:
        if each is None:
            return None
        found |= each
    return frozenset(found)
