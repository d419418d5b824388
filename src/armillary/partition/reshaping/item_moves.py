"""Writers for items that move between partitions or back in time, unchanged: rid, lsn, etag and timestamp stay, so log
positions and etags remain valid. They use the same key spaces, counters and rules as every other write.

`Adopter` applies the changes of another partition, after the copy of a split or merge. Changes arrive in lsn order, but
an item that was written twice has only its later entry. So for a while two items may claim one id or one unique value;
the one that lost it deletes only entries that still point to itself.

`Extractor` removes items from a partition that does not own their keys, for `armillary check --repair`; earlier
versions could leave such items behind after a split. No tombstone is left, because the item continues to exist in the
right partition.

`Rewinder` rolls a partition back to a snapshot by undoing the writes since: the log names the items. Items created
since are removed without a tombstone. The partition's lsn and rid counter do not go back, so neither is ever reused.
The caller makes sure that the snapshot is of the same store under the same rules; if too much was written since, it
copies instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model import documents, layout
from armillary.model.encoding import ItemHeader, payload_of, unpack_header
from armillary.model.keys import NO_KEY, to_header
from armillary.model.layout import LogicalSize, pack_size
from armillary.model.ranges import KeyRange
from armillary.partition.history import log, versions
from armillary.partition.operations import NO_TERMS, Document
from armillary.partition.schema import expires_s
from armillary.partition.writing.index_entries import entries_in
from armillary.partition.writing.writer import Writer
from armillary.storage.engine import Txn, View


class Adopter(Writer):
    """A Writer for items that already have their system properties."""

    def adopt(self, rid: int, stored: bytes) -> None:
        txn, header, payload = self._txn, unpack_header(stored), payload_of(stored)
        document = documents.plain_json(stored)
        packed_rid = rid.to_bytes(8, "big")
        present = txn.get(layout.ITEMS + packed_rid)
        before_terms = NO_TERMS
        bytes_added, items_added = len(payload), 1
        if present is not None:
            before, before_payload = unpack_header(present), payload_of(present)
            if before.epk != header.epk:
                raise Failure(Kind.INTERNAL, "A copied item would leave its logical partition.")
            before_terms = self._terms_of(before, before_payload)
            bytes_added, items_added = len(payload) - len(before_payload), 0
            self._give_up_names(packed_rid, present)
            self._delete_expiry(before, rid)
            txn.delete(layout.change_key(before.lsn, before.step, rid))
        terms = self._terms_of(header, payload)
        self._move_terms(rid, before_terms, terms)
        self._note_paths(terms, is_first=self.head.item_count == 0)
        txn.put(layout.ITEMS + packed_rid, stored)
        txn.put(layout.id_key(header.epk, document["id"]), packed_rid)
        txn.put(layout.member_key(header.epk, rid), b"")
        txn.put(layout.change_key(header.lsn, header.step, rid), log.WRITTEN)
        for constraint, values in entries_in(self._schema, header, payload):
            txn.put(layout.unique_key(header.epk, constraint, values), packed_rid)
        when = expires_s(header, self._schema.rules_of(header).default_ttl)
        if when is not None:
            self._expire_at(when, rid)
        self._count(header, document, items_added, bytes_added)
        self.head.lsn = max(self.head.lsn, header.lsn)

    def bury(self, key: bytes, value: bytes) -> None:
        """Apply a tombstone, and delete its item if it is here."""
        self.take_out(key[-layout.RID_BYTES :])
        self._txn.put(key, value)
        self.head.lsn = max(self.head.lsn, log.change_lsn(key))

    def take_out(self, packed_rid: bytes) -> None:
        """Delete an item without a tombstone, if it is here."""
        txn, rid = self._txn, int.from_bytes(packed_rid, "big")
        present = txn.get(layout.ITEMS + packed_rid)
        if present is None:
            return
        header, payload = unpack_header(present), payload_of(present)
        self._move_terms(rid, self._terms_of(header, payload), NO_TERMS)
        self._give_up_names(packed_rid, present)
        self._delete_expiry(header, rid)
        txn.delete(layout.ITEMS + packed_rid)
        txn.delete(layout.member_key(header.epk, rid))
        txn.delete(layout.change_key(header.lsn, header.step, rid))
        self._resize_stored(header.epk, -1, -len(payload))

    def finish(self) -> None:
        self._txn.put(layout.HEAD_KEY, self.head.pack())

    def _give_up_names(self, packed_rid: bytes, stored: bytes) -> None:
        """Delete the id and unique entries of an item, except those that point to another item by now."""
        txn, header = self._txn, unpack_header(stored)
        names = [layout.id_key(header.epk, documents.item_id(stored))]
        values = entries_in(self._schema, header, payload_of(stored))
        names += [layout.unique_key(header.epk, constraint, each) for constraint, each in values]
        for name in names:
            if txn.get(name) == packed_rid:
                txn.delete(name)

    def _count(self, header: ItemHeader, document: Document, items_added: int, bytes_added: int) -> None:
        key = layout.size_key(header.epk)
        if self._txn.get(key) is None:
            definition = self._schema.key
            text = to_header(definition.extract(document) if definition is not None else NO_KEY)
            self._txn.put(key, pack_size(LogicalSize(0, 0, text)))
        self._resize_stored(header.epk, items_added, bytes_added)


class Extractor(Adopter):
    def extract(self, rid: int) -> None:
        txn, packed_rid = self._txn, rid.to_bytes(layout.RID_BYTES, "big")
        stored = txn.get(layout.ITEMS + packed_rid)
        if stored is None:
            return
        size_key = layout.size_key(unpack_header(stored).epk)
        if txn.get(size_key) is None:
            txn.put(size_key, pack_size(LogicalSize(1, len(payload_of(stored)), "[]")))  # deleted with the item
        self.take_out(packed_rid)
        _drop(txn, [entry for entry in _versions(txn) if entry.place.endswith(packed_rid)])


def has_stray_versions(view: View, key_range: KeyRange) -> bool:
    """Whether there are version entries of items outside the range."""
    return any(not key_range.contains(entry.epk) for entry in _versions(view))


def drop_stray_versions(txn: Txn, key_range: KeyRange) -> None:
    _drop(txn, [entry for entry in _versions(txn) if not key_range.contains(entry.epk)])


def _versions(view: View) -> Iterator[versions.Entry]:
    for key, value in view.scan(layout.VERSIONS, layout.space_end(layout.VERSIONS)):
        yield versions.unpack_entry(key, value)


def _drop(txn: Txn, entries: Sequence[versions.Entry]) -> None:
    for entry in entries:
        txn.delete(layout.VERSIONS + entry.place)
        if entry.before_key is not None:
            txn.delete(entry.before_key)


class TooMuch(Exception):
    """The rollback is refused: too much was written, or the log no longer has all changes. Never leaves the account."""


class Rewinder(Adopter):
    def rewind(self, past: View, past_head: log.Head) -> None:
        """Undo everything written since a snapshot."""
        txn = self._txn
        since = list(
            islice(
                txn.scan(layout.change_key(past_head.lsn + 1), layout.space_end(layout.CHANGES)),
                limits.REWIND_ENTRIES_MAX + 1,
            )
        )
        if len(since) > limits.REWIND_ENTRIES_MAX:
            raise TooMuch
        for key, value in since:
            if value != log.WRITTEN:
                txn.delete(key)
        for key, _ in since:
            packed_rid = key[-layout.RID_BYTES :]
            stored = past.get(layout.ITEMS + packed_rid)
            if stored is not None:
                self.adopt(int.from_bytes(packed_rid, "big"), stored)
            else:
                self.take_out(packed_rid)
        # A delete whose tombstone was dropped cannot be undone.
        if (self.head.item_count, self.head.size_bytes) != (past_head.item_count, past_head.size_bytes):
            raise TooMuch
        self.finish()
