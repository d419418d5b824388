"""Checks and failures with which a Writer refuses operations: conflicts, failed preconditions, limits, and items that
do not belong to the partition's range or to the logical partition that the operation names. The account routes
operations by key; the last two checks hold independently of it.
"""

from __future__ import annotations

from armillary import limits
from armillary.errors import Failure, Kind, Reason
from armillary.model import charges, documents
from armillary.model.keys import KEY_DIFFERS
from armillary.model.ranges import KeyRange
from armillary.partition.operations import Document, Operation
from armillary.partition.schema import Schema


def taken(item_id: str, charge_ru: float) -> Failure:
    return Failure(
        Kind.CONFLICT,
        "Entity with the specified id already exists in the system: "
        f"an item with id '{item_id}' is in this logical partition.",
        charge_ru=charge_ru,
    )


def precondition_failed(charge_ru: float) -> Failure:
    return Failure(
        Kind.PRECONDITION_FAILED,
        "One of the specified pre-condition is not met: the item is not in the state that the request's etag or "
        "condition asks for. Read it again and retry.",
        charge_ru=charge_ru,
    )


def too_many_changes() -> Failure:
    return Failure(
        Kind.TOO_LARGE,
        f"A transaction changes at most {limits.TRANSACTION_CHANGES_MAX} items. Divide it.",
        details={"reason": Reason.TRANSACTION_TOO_LARGE},
    )


def missing(item_id: str) -> Failure:
    return Failure(
        Kind.NOT_FOUND,
        "Entity with the specified id does not exist in the system: "
        f"no item with id '{item_id}' in this logical partition.",
        charge_ru=charges.failed_read_ru(),
    )


def key_full(most_bytes: int) -> Failure:
    shown = f"{most_bytes / limits.GB:g} GB" if most_bytes >= limits.GB else f"{most_bytes / limits.MB:g} MB"
    return Failure(
        Kind.KEY_FULL, f"Partition key reached maximum size of {shown}", charge_ru=charges.failed_write_ru(0)
    )


def misplaced(item_id: str, key_range: KeyRange) -> Failure:
    """Neither point reads nor queries for its key would find it."""
    return Failure(
        Kind.INTERNAL,
        f"The item '{item_id}' does not belong to the partition key range {key_range.id}; nothing was written.",
    )


def check_key(schema: Schema, operation: Operation, document: Document, *, is_bson: bool = False) -> None:
    """Refuse a patch, merge or update that would change the item's partition key."""
    definition = schema.key
    if definition is None:
        return
    key = documents.key_of_bson(definition, document) if is_bson else definition.extract(document)
    if key != operation.key and definition.stored_key(key) != operation.epk:
        raise Failure(Kind.KEY_MISMATCH, KEY_DIFFERS, charge_ru=charges.failed_write_ru())
