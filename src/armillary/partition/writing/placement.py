"""Checks that an item belongs where it is about to be written: to the partition's range, and to the logical partition
that the operation names. The account routes operations by key; these checks hold independently of it.
"""

from __future__ import annotations

from armillary.errors import Failure, Kind
from armillary.model import charges, documents
from armillary.model.keys import KEY_DIFFERS
from armillary.model.ranges import KeyRange
from armillary.partition.operations import Document, Operation
from armillary.partition.schema import Schema


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
