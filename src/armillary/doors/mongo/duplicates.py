"""Duplicate keys, told as MongoDB tells them: which index, which value."""

from __future__ import annotations

from armillary.account.container import Container
from armillary.doors.mongo.call import Call
from armillary.errors import Failure, Kind
from armillary.model.bson_values import Document, shell_text

ID_INDEX = "_id_"


def as_duplicate(call: Call, container: Container, failure: Failure, document: Document) -> Failure:
    """A conflict of the core's in the protocol's words; other failures as they are. `document` was to be stored."""
    if failure.kind is not Kind.CONFLICT or "code" in failure.details:
        return failure
    namespace = f"{call.database}.{container.name}"
    return duplicate(namespace, ID_INDEX, {"_id": document.get("_id")}, failure.charge_ru)


def duplicate(namespace: str, index: str, values: Document, charge_ru: float = 0.0) -> Failure:
    return Failure(
        Kind.CONFLICT,
        f"E11000 duplicate key error collection: {namespace} index: {index} dup key: {shell_text(values)}",
        charge_ru=charge_ru,
        details={
            "code": 11000,
            "fields": {"keyPattern": dict.fromkeys(values, 1), "keyValue": values},
        },
    )
