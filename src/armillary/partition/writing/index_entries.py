"""The index entries that a write adds and removes: index terms, and the values of the container's unique keys and of
unique indexes of a MongoDB collection. An item may have hundreds of thousands of terms, so all loops over them count
their work and may give way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from armillary import limits, work
from armillary.errors import Failure, Kind
from armillary.model import charges, documents, layout
from armillary.model.encoding import ItemHeader
from armillary.partition.operations import Draft
from armillary.partition.schema import Schema
from armillary.storage.engine import Txn

Entries = list[tuple[int, bytes]]  # unique values: constraint and values
Term = tuple[str, bytes]
Terms = list[Term]
PrefixOf = Callable[[str], bytes]  # the prefix of a path's term keys

_UNITS = 12  # units of work, to put or delete one

# Unique values.


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
    epk, rid = item
    packed_rid = rid.to_bytes(layout.RID_BYTES, "big")
    before, after = set(old), set(new)
    for portion in work.portions(new, 30):
        for entry in portion:
            if entry in before:
                continue
            key = layout.unique_key(epk, *entry)
            holder = txn.get(key)
            if holder is not None and holder != packed_rid and not is_released(epk, int.from_bytes(holder, "big")):
                raise _taken(schema, entry[0])
            txn.put(key, packed_rid)
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


# Index terms.


def put_terms(txn: Txn, known: Mapping[str, bytes], prefix_of: PrefixOf, terms: Terms, rid: int) -> None:
    """`known`: prefixes already known, which is nearly all of them."""
    prefix, packed_rid = known.get, rid.to_bytes(8, "big")
    for portion in _portions(terms):
        txn.put_keys([(prefix(path) or prefix_of(path)) + term + packed_rid for path, term in portion])


def delete_terms(txn: Txn, prefix_of: PrefixOf, terms: Terms, rid: int) -> None:
    delete, packed_rid = txn.delete, rid.to_bytes(8, "big")
    for portion in _portions(terms):
        for path, term in portion:
            delete(prefix_of(path) + term + packed_rid)


def differences(before: Terms, after: Terms) -> tuple[Terms, Terms]:
    """The terms that are removed and those that are added."""
    if len(before) + len(after) <= limits.WORK_PORTION:
        old, new = set(before), set(after)
        return list(old - new), list(new - old)
    return _without(before, after), _without(after, before)


def _without(terms: Terms, others: Terms) -> Terms:
    if not others or not terms:
        return terms
    left_out: set[Term] = set()
    for portion in work.portions(others, 2):
        left_out.update(portion)
    return [term for portion in work.portions(terms, 2) for term in portion if term not in left_out]


def _portions(terms: Terms) -> Iterable[Sequence[Term]]:
    return (terms,) if len(terms) <= limits.WORK_PORTION else work.portions(terms, _UNITS)
