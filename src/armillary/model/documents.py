"""A stored item as a document, whichever door wrote it: as JSON for queries and answers, as BSON for MongoDB clients.

Items of the SQL and Table doors are stored as the JSON text that is answered. Those of the MongoDB door are stored as
the exact BSON received, after the item's rid; their system properties (`_rid`, `_etag`, `_ts`) are made from the
header. Only this module interprets the stored payload of an item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import orjson
from bson.errors import BSONError
from bson.int64 import Int64

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model import items, layout
from armillary.model.bson import bson_values
from armillary.model.bson.bson_elements import FieldDecoder
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_json import ID, document_of, field_name, json_of, to_json
from armillary.model.bson.bson_values import Document
from armillary.model.encoding import FLAG_INDEXED, FORMAT_JSON, ItemHeader, payload_of, unpack_header
from armillary.model.indexes.indexing import IndexingPolicy, ItemTerms
from armillary.model.indexes.unique_keys import UniqueKeyPolicy
from armillary.model.keys import Key, PartitionKeyDefinition
from armillary.model.resources import item_rid_text
from armillary.work import spend

_RID_BYTES = layout.RID_BYTES
_LOADED_UNIT_BYTES = 5  # of JSON with many short members, the slowest: about 100 ns
_NO_TERMS = ItemTerms([], 0)


class Owner(Protocol):
    """The parts of a container that its items' system properties contain."""

    @property
    def rid(self) -> bytes: ...
    @property
    def self_link(self) -> str: ...


class Form(NamedTuple):
    """How a query reads items and writes rows."""

    is_json: bool
    text: Callable[[bytes], bytes]  # the text of a stored item
    load: Callable[[bytes], Any]  # parses such a text
    dump: Callable[[Any], bytes]  # the text of a row
    fields: frozenset[str] | None = None  # the only ones that are read; None: all


def json_form(owner: Owner) -> Form:
    return Form(True, lambda stored: json_text(stored, owner), orjson.loads, orjson.dumps)


class _NoOwner:
    rid, self_link = b"", ""


PLAIN_JSON = json_form(_NoOwner())  # for reading items without the system properties of their container


# Reading.


def json_document(stored: bytes, owner: Owner) -> dict[str, Any]:
    """An item as JSON, with its system properties."""
    if stored[0] == FORMAT_JSON:
        return orjson.loads(payload_of(stored))  # type: ignore[no-any-return]
    return orjson.loads(_text_of_bson(stored, owner))  # type: ignore[no-any-return]


def json_text(stored: bytes, owner: Owner) -> bytes:
    """An item as answered."""
    return payload_of(stored) if stored[0] == FORMAT_JSON else _text_of_bson(stored, owner)


def plain_json(stored: bytes) -> dict[str, Any]:
    """An item as JSON, perhaps without its system properties: for reading what the client wrote."""
    if stored[0] == FORMAT_JSON:
        return orjson.loads(payload_of(stored))  # type: ignore[no-any-return]
    return json_of(bson_document(stored))


def bson_bytes(stored: bytes) -> bytes:
    """An item as a BSON document, without system properties."""
    if stored[0] == FORMAT_JSON:
        return bson_values.encode(document_of(orjson.loads(payload_of(stored))))
    return payload_of(stored)[_RID_BYTES:]


def bson_document(stored: bytes) -> Document:
    if stored[0] == FORMAT_JSON:
        return document_of(orjson.loads(payload_of(stored)))
    return _decoded(payload_of(stored))


def _decoded(payload: bytes) -> Document:
    try:
        return bson_values.decode(payload[_RID_BYTES:])
    except BSONError:
        raise Failure(Kind.CORRUPT, "A stored document cannot be decoded; run `armillary check`.") from None


def item_id(stored: bytes) -> str:
    if stored[0] == FORMAT_JSON:
        return orjson.loads(payload_of(stored))["id"]  # type: ignore[no-any-return]
    return id_text(bson_document(stored).get(ID))


def etag_of(stored: bytes) -> str:
    if stored[0] == FORMAT_JSON:
        return items.etag_in(payload_of(stored))
    header = unpack_header(stored)
    return items.etag(_rid_of(stored), header.lsn, header.step, header.ts)


def _rid_of(stored: bytes) -> int:
    """The rid of an item that is stored as BSON."""
    return int.from_bytes(payload_of(stored)[:_RID_BYTES], "big")


def _text_of_bson(stored: bytes, owner: Owner) -> bytes:
    header, rid = unpack_header(stored), _rid_of(stored)
    etag = items.etag(rid, header.lsn, header.step, header.ts)
    rid_text = item_rid_text(owner.rid, rid)
    text = orjson.dumps(json_of(bson_document(stored)))[:-1]
    return text + items.close_text(rid_text, f"{owner.self_link}docs/{rid_text}/", etag, header.ts)


BSON = Form(False, bson_bytes, bson_values.decode, bson_values.encode)


def bson_form(names: frozenset[str]) -> Form:
    """The form for queries that need only these fields of a document."""
    return Form(False, bson_bytes, FieldDecoder(names), bson_values.encode, names)


# Writing.


def bson_payload(rid: int, encoded: bytes) -> bytes:
    """The stored payload of a BSON document, after the header."""
    return rid.to_bytes(_RID_BYTES, "big") + encoded


def rebuilt_bson(item: dict[str, Any], before: bytes) -> tuple[bytes, Document] | None:
    """An item stored as BSON that was overwritten through the SQL door, as BSON again: unchanged numbers keep their
    types. None: it has no BSON form."""
    item = items.strip_system_properties(item)
    document = document_of(item, bson_document(before))
    seen = json_of(document)
    if ID not in item:
        del seen[ID]
    return (bson_values.encode(document), document) if seen == item else None


def check_bson_size(size_bytes: int) -> None:
    if size_bytes > limits.MONGO_DOCUMENT_BYTES_MAX:
        raise Failure(
            Kind.TOO_LARGE,
            f"BSONObj size: {size_bytes} (0x{size_bytes:X}) is invalid. Size must be between 0 and "
            f"{limits.MONGO_DOCUMENT_BYTES_MAX}.",
        )


def bson_ttl(document: Mapping[str, Any]) -> int:
    """Seconds to live after the last write, from a document's field `ttl`; 0: not given."""
    ttl: Any = document.get("ttl")
    kind = type(ttl)
    is_whole = kind is int or kind is Int64 or (kind is float and ttl.is_integer())
    return int(ttl) if is_whole and (ttl == -1 or 0 < ttl <= limits.TTL_SECONDS_MAX) else 0


def key_of_bson(definition: PartitionKeyDefinition, document: Mapping[str, Any]) -> Key:
    """The partition key of a document: the same as of its JSON form."""
    item: dict[str, Any] = {}
    for steps in definition.steps:
        member = steps[0]
        if member == "id":
            item[member] = id_text(document[ID])
        elif (field := field_name(member)) is not None and field in document:
            item[member] = to_json(document[field])
    return definition.extract(item)


def document_key(definition: PartitionKeyDefinition | None, document: Document) -> Document:
    """The shard key and `_id` of a document, as change streams and commands identify it."""
    key: Document = {}
    for steps in definition.steps if definition is not None else ():
        names = [field_name(steps[0]) or ID, *steps[1:]]
        value: Any = document
        for name in names:
            value = value.get(name) if type(value) is dict else None
        key[".".join(names)] = value
    return {**{name: value for name, value in key.items() if name != ID}, ID: document.get(ID)}


def item_terms(indexing: IndexingPolicy, header: ItemHeader, payload: bytes) -> ItemTerms:
    """The index terms of a stored item."""
    if not header.flags & FLAG_INDEXED:
        return _NO_TERMS
    return loaded_terms(indexing, header, loaded(header.format, payload))


def loaded_terms(indexing: IndexingPolicy, header: ItemHeader, document: Document) -> ItemTerms:
    """The same for an indexed item whose payload was loaded."""
    if header.format == FORMAT_JSON:
        return indexing.terms(document, header.ts)
    return bson_terms(indexing, document, header.ts)


def loaded_id(form: int, document: Document) -> str:
    return document["id"] if form == FORMAT_JSON else id_text(document.get(ID))


def document_terms(indexing: IndexingPolicy, header: ItemHeader, document: Document) -> ItemTerms:
    """The same for a stored document that was decoded."""
    return bson_terms(indexing, document, header.ts) if header.flags & FLAG_INDEXED else _NO_TERMS


def bson_terms(indexing: IndexingPolicy, document: Document, ts: int, item_id: str | None = None) -> ItemTerms:
    """The index terms of a BSON document, those of its JSON form; only the fields that the policy concerns are
    converted. `item_id`: its id, if known."""
    named = indexing.named_fields
    if named is None:
        item = json_of(document)
    else:
        item = {"id": item_id or id_text(document[ID])}
        for field, member in named:
            if field in document:
                item[member] = to_json(document[field])
    made = indexing.plain_terms(item, ts)
    return indexing.with_fields(made, document) if indexing.fields else made


def unique_entries(
    policy: UniqueKeyPolicy, indexing: IndexingPolicy, form: int, document: Mapping[str, Any]
) -> list[tuple[int, bytes]]:
    """The unique values of an item: constraint and values. `form` is the format of the document."""
    entries: list[tuple[int, bytes]] = []
    if policy.paths:
        entries += enumerate(policy.values(document if form == FORMAT_JSON else json_of(dict(document))))
    if indexing.unique_fields:
        as_bson = document_of(document) if form == FORMAT_JSON else dict(document)
        entries += [(index.slot, value) for index in indexing.unique_fields for value in index.unique_values(as_bson)]
    return entries


def stored_unique_entries(
    policy: UniqueKeyPolicy, indexing: IndexingPolicy, form: int, payload: bytes
) -> list[tuple[int, bytes]]:
    if not policy.paths and not indexing.unique_fields:
        return []
    return unique_entries(policy, indexing, form, loaded(form, payload))


def loaded(form: int, payload: bytes) -> dict[str, Any]:
    """Parse a payload by its format."""
    if form == FORMAT_JSON:
        document: dict[str, Any] = orjson.loads(payload)
        if len(payload) > limits.WORK_AT_ONCE_BYTES:
            spend(len(payload) // _LOADED_UNIT_BYTES)  # afterwards: parsing cannot be divided
        return document
    return _decoded(payload)
