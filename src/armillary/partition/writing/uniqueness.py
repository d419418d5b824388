"""Unique values of items: determining them, and replacing an item's old ones by its new ones. They come from the
container's unique keys and from unique indexes of a MongoDB collection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary import work
from armillary.errors import Failure, Kind
from armillary.model import charges, documents, layout
from armillary.model.encoding import ItemHeader
from armillary.partition.operations import Draft
from armillary.partition.schema import Schema
from armillary.storage.engine import Txn

Entries = list[tuple[int, bytes]]  # constraint and values


def has_unique(schema: Schema) -> bool:
    """Whether items of this container have unique values."""
    return bool(schema.unique.paths or schema.rules.indexing.unique_fields or schema.older_rules)


def entries_of(schema: Schema, made: Draft) -> Entries:
    return documents.unique_entries(schema.unique, schema.rules.indexing, made.format, made.document)


def entries_in(schema: Schema, header: ItemHeader, payload: bytes) -> Entries:
    """The unique values of a stored item, by the rules it is stored under."""
    indexing = schema.rules_of(header).indexing
    return documents.stored_unique_entries(schema.unique, indexing, header.format, payload)


def move_entries(
    txn: Txn,
    schema: Schema,
    item: tuple[bytes, int],
    old: Entries,
    new: Entries,
    is_released: Callable[[bytes, int], bool],
) -> None:
    """Replace the unique values of an item (effective key and rid). `is_released` is asked whether the present holder
    of a value has expired, and removes it if so."""
    epk, number = item
    rid = number.to_bytes(layout.RID_BYTES, "big")
    before, after = set(old), set(new)
    for portion in work.portions(new, 30):
        for entry in portion:
            if entry in before:
                continue
            key = layout.unique_key(epk, *entry)
            holder = txn.get(key)
            if holder is not None and holder != rid and not is_released(epk, int.from_bytes(holder, "big")):
                raise _taken(schema, entry[0])
            txn.put(key, rid)
    for portion in work.portions(old):
        for entry in portion:
            if entry not in after:
                txn.delete(layout.unique_key(epk, *entry))


def _taken(schema: Schema, constraint: int) -> Failure:
    details: dict[str, Any] = {"constraint": constraint}
    for index in schema.rules.indexing.unique_fields:
        if index.slot == constraint:
            details["index"] = index.name
    return Failure(
        Kind.CONFLICT,
        "Unique index constraint violation.",
        charge_ru=charges.failed_write_ru(0),
        details=details,
    )
