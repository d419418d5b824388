"""Duplicate key errors (E11000) with MongoDB's text, keyPattern and keyValue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.account.collections import indexes
from armillary.account.container import Container
from armillary.doors.mongo.call import Call
from armillary.errors import Failure, Kind
from armillary.model.bson.bson_values import Document, shell_text

ID_INDEX = "_id_"


def as_duplicate(
    call: Call,
    container: Container,
    failure: Failure,
    document: Document | None = None,
    building: Sequence[Document] = (),
) -> Failure:
    """The error of a CONFLICT; other failures unchanged. `document` was to be stored; None: the failure has it.
    `building`: definitions of indexes that are being built."""
    if failure.kind is not Kind.CONFLICT or "code" in failure.details:
        return failure
    document = failure.details.get("document", {}) if document is None else document
    namespace = f"{call.database}.{container.name}"
    name = failure.details.get("index")
    if name is None:
        return duplicate(namespace, ID_INDEX, {"_id": document.get("_id")}, {"_id": 1}, failure.charge_ru)
    found = next((each for each in (*indexes.definitions(container), *building) if each["name"] == name), None)
    key: Document = found["key"] if found is not None else {}
    values = {path: _value(document, path) for path in key}
    return duplicate(namespace, name, values, key, failure.charge_ru)


def _value(document: Document, path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        if isinstance(value, list) and value:
            value = value[0]
        value = value.get(part) if isinstance(value, dict) else None
    return value


def duplicate(namespace: str, index: str, values: Document, key: Document, charge_ru: float = 0.0) -> Failure:
    return Failure(
        Kind.CONFLICT,
        f"E11000 duplicate key error collection: {namespace} index: {index} dup key: {shell_text(values)}",
        charge_ru=charge_ru,
        details={
            "code": 11000,
            "fields": {"keyPattern": key, "keyValue": values},
        },
    )
