"""Upserts: the document that is inserted when nothing matches, made from the equality conditions of the filter and the
update.

`_id` comes first; if it is absent, the writer generates one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bson.regex import Regex

from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.filters.matching import is_operators
from armillary.languages.mongo.paths import split
from armillary.languages.mongo.updates.updates import Update, check_immutable
from armillary.model.bson.bson_values import Document, equal
from armillary.work import spend

_NOT_SINGLE, _NOT_EXACT = 54, 111


def upserted_document(given: Document, update: Update) -> Document:
    """The document to insert. A replacement takes only `_id` from the filter."""
    if update.kind == "replacement":
        found = _equalities(given, lambda path: path.partition(".")[0] == "_id")
        if any(path != "_id" for path in found):
            raise refusal(_NOT_EXACT, "field at '_id' must be exactly specified, field at sub-path '_id.*' found")
        start = found
    else:
        start = document_from(given)
    document = update.apply(start, is_insert=True)
    check_immutable(start, document, "_id")
    return id_first(document)


def id_first(document: Document) -> Document:
    if "_id" not in document or next(iter(document)) == "_id":
        return document
    return {"_id": document["_id"], **document}


def document_from(given: Document) -> Document:
    """The fields that a filter fixes by equality; dotted paths become nested documents."""
    document: Document = {}
    for path, value in _equalities(given, lambda path: True).items():
        target = document
        *above, last = split(path)
        for part in above:
            target = target.setdefault(part, {})
        target[last] = value
    return document


def _equalities(given: Document, is_wanted: Callable[[str], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in _pinned(given):
        if is_wanted(path):
            _pin(path, value, found)
    return found


def _pinned(given: Document) -> Iterator[tuple[str, Any]]:
    for name, operand in given.items():
        if name == "$and" or (name == "$or" and type(operand) is list and len(operand) == 1):
            for each in operand:
                yield from _pinned(each)
        elif name.startswith("$"):
            continue
        elif not is_operators(operand):
            if not isinstance(operand, Regex):
                yield name, operand
        else:
            yield from _pinned_by(name, operand)


def _pinned_by(path: str, operators: Document) -> Iterator[tuple[str, Any]]:
    for name, operand in operators.items():
        if name == "$eq":
            yield path, operand
        elif name == "$all" and not any(is_operators(each) for each in operand):
            for each in operand:
                yield path, each
        elif name == "$in" and len(operand) == 1 and not isinstance(operand[0], Regex):
            yield path, operand[0]


def _pin(path: str, value: Any, found: dict[str, Any]) -> None:
    spend(2 * len(found))
    for other, earlier in found.items():
        if other == path:
            if equal(earlier, value):
                return
            raise refusal(_NOT_SINGLE, f"cannot infer query fields to set, path '{path}' is matched twice")
        if other.startswith(path + ".") or path.startswith(other + "."):
            shorter, longer = sorted((path, other), key=len)
            raise refusal(
                _NOT_SINGLE, f"cannot infer query fields to set, both paths '{shorter}' and '{longer}' are matched"
            )
    found[path] = value
