"""Applying items of another partition unchanged: rid, lsn, etag and timestamp stay, so log positions and etags of the
other partition remain valid here. Uses the same key spaces, counters and rules as every other write.

Changes arrive in lsn order, but an item that was written twice has only its later entry. So for a while two items may
claim one id or one unique value; the one that lost it deletes only entries that still point to itself.
"""

from __future__ import annotations

from armillary.errors import Failure, Kind
from armillary.model import documents, layout
from armillary.model.encoding import ItemHeader, payload_of, unpack_header
from armillary.model.keys import NO_KEY, to_header
from armillary.partition.history import log
from armillary.partition.operations import NO_TERMS, Document
from armillary.partition.schema import expires_s
from armillary.partition.writing.sizes import LogicalSize, pack_size
from armillary.partition.writing.uniqueness import entries_in
from armillary.partition.writing.writer import Writer


class Adopter(Writer):
    """A Writer for items that already have their system properties."""

    def adopt(self, number: int, stored: bytes) -> None:
        txn, header, payload = self._txn, unpack_header(stored), payload_of(stored)
        document = documents.plain_json(stored)
        rid = number.to_bytes(8, "big")
        present = txn.get(layout.ITEMS + rid)
        before_terms = NO_TERMS
        bytes_added, items_added = len(payload), 1
        if present is not None:
            before, before_payload = unpack_header(present), payload_of(present)
            if before.epk != header.epk:
                raise Failure(Kind.INTERNAL, "A copied item would leave its logical partition.")
            before_terms = self._terms_of(before, before_payload)
            bytes_added, items_added = len(payload) - len(before_payload), 0
            self._give_up_names(rid, present)
            self._delete_expiry(before, number)
            txn.delete(layout.change_key(before.lsn, before.step, number))
        terms = self._terms_of(header, payload)
        self._move_terms(number, before_terms, terms)
        self._note_paths(terms, is_first=self.head.item_count == 0)
        txn.put(layout.ITEMS + rid, stored)
        txn.put(layout.id_key(header.epk, document["id"]), rid)
        txn.put(layout.member_key(header.epk, number), b"")
        txn.put(layout.change_key(header.lsn, header.step, number), log.WRITTEN)
        for constraint, values in entries_in(self._schema, header, payload):
            txn.put(layout.unique_key(header.epk, constraint, values), rid)
        when = expires_s(header, self._schema.rules_of(header).default_ttl)
        if when is not None:
            txn.put(layout.expiry_key(when, number), b"")
        self._count(header, document, items_added, bytes_added)
        self.head.lsn = max(self.head.lsn, header.lsn)

    def bury(self, key: bytes, value: bytes) -> None:
        """Apply a tombstone, and delete its item if it is here."""
        self.take_out(key[-layout.RID_BYTES :])
        self._txn.put(key, value)
        self.head.lsn = max(self.head.lsn, log.change_lsn(key))

    def take_out(self, rid: bytes) -> None:
        """Delete an item without a tombstone, if it is here."""
        txn, number = self._txn, int.from_bytes(rid, "big")
        present = txn.get(layout.ITEMS + rid)
        if present is None:
            return
        header, payload = unpack_header(present), payload_of(present)
        self._move_terms(number, self._terms_of(header, payload), NO_TERMS)
        self._give_up_names(rid, present)
        self._delete_expiry(header, number)
        txn.delete(layout.ITEMS + rid)
        txn.delete(layout.member_key(header.epk, number))
        txn.delete(layout.change_key(header.lsn, header.step, number))
        self._resize_stored(header.epk, -1, -len(payload))

    def finish(self) -> None:
        self._txn.put(layout.HEAD_KEY, self.head.pack())

    def _give_up_names(self, rid: bytes, stored: bytes) -> None:
        """Delete the id and unique entries of an item, except those that point to another item by now."""
        txn, header = self._txn, unpack_header(stored)
        names = [layout.id_key(header.epk, documents.item_id(stored))]
        values = entries_in(self._schema, header, payload_of(stored))
        names += [layout.unique_key(header.epk, constraint, each) for constraint, each in values]
        for name in names:
            if txn.get(name) == rid:
                txn.delete(name)

    def _count(self, header: ItemHeader, document: Document, items_added: int, bytes_added: int) -> None:
        key = layout.size_key(header.epk)
        if self._txn.get(key) is None:
            definition = self._schema.key
            text = to_header(definition.extract(document) if definition is not None else NO_KEY)
            self._txn.put(key, pack_size(LogicalSize(0, 0, text)))
        self._resize_stored(header.epk, items_added, bytes_added)
