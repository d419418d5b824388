"""Upserts: the document that an update begins with when nothing matches, out of what the filter says with equality.

`_id` is put first; if there is none in the end, whoever writes the document makes one.
"""

from __future__ import annotations

from typing import Any, Final

from bson.regex import Regex

from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.matching import is_operators
from armillary.languages.mongo.paths import split
from armillary.languages.mongo.updates import Update, check_immutable
from armillary.model.bson_values import Document, equal

_NOT_SINGLE: Final = 54


def upserted_document(given: Document, update: Update) -> Document:
    """What an upsert that found nothing inserts."""
    start = document_from(given)
    if update.kind == "replacement":
        start = {"_id": start["_id"]} if "_id" in start else {}
    document = update.apply(start, is_insert=True)
    check_immutable(start, document, "_id")
    return id_first(document)


def id_first(document: Document) -> Document:
    if "_id" not in document or next(iter(document)) == "_id":
        return document
    return {"_id": document["_id"], **document}


def document_from(given: Document) -> Document:
    """The fields that a filter pins by equality; dotted paths become documents inside documents."""
    document: Document = {}
    for path, value in _equalities(given).items():
        target = document
        *above, last = split(path)
        for part in above:
            target = target.setdefault(part, {})
        target[last] = value
    return document


def _equalities(given: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _collect(given, found)
    return found


def _collect(given: Document, found: dict[str, Any]) -> None:
    for name, operand in given.items():
        if name == "$and" or (name == "$or" and type(operand) is list and len(operand) == 1):
            for each in operand:
                _collect(each, found)
        elif name.startswith("$"):
            continue
        elif not is_operators(operand):
            if not isinstance(operand, Regex):
                _pin(name, operand, found)
        else:
            _collect_operators(name, operand, found)


def _collect_operators(path: str, operators: Document, found: dict[str, Any]) -> None:
    for name, operand in operators.items():
        if name == "$eq":
            _pin(path, operand, found)
        elif name == "$all" and len(operand) == 1 and not is_operators(operand[0]):
            _pin(path, operand[0], found)


def _pin(path: str, value: Any, found: dict[str, Any]) -> None:
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
