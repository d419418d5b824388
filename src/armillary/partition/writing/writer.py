"""One transaction on a partition: item, index terms, change entry, sizes and counters change together or not at all.

A Writer lives for one run of one transaction function. It changes only its Txn; the partition takes over the new lsn
and path numbers after the commit is durable. Failures are made in `write_refusals.py`, index terms in
`index_entries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from armillary import limits, work
from armillary.errors import Failure, Kind
from armillary.model import charges, documents, items, layout
from armillary.model.bson.bson_values import encode
from armillary.model.encoding import (
    FIXED_HEADER_BYTES,
    FLAG_INDEXED,
    FORMAT_BSON,
    FORMAT_JSON,
    ItemHeader,
    lsn_of,
    new_tuple,
    pack_item,
    payload_of,
    place_of,
    unpack_header,
)
from armillary.model.indexes.indexing import ItemTerms, count_charged
from armillary.model.keys import to_header
from armillary.model.layout import LogicalSize, grown, pack_size
from armillary.model.ranges import KeyRange
from armillary.model.resources import item_rid_text
from armillary.partition.history import change_stream_events, log, versions
from armillary.partition.operations import Document, Draft, Operation, Outcome, Result, Verb, bson_draft, draft, redraft
from armillary.partition.schema import Schema, expires_s
from armillary.partition.writing.index_entries import (
    Entries,
    delete_terms,
    differences,
    entries_in,
    entries_of,
    has_unique,
    move_entries,
    put_terms,
)
from armillary.partition.writing.path_coverage import PathCoverage, note_item
from armillary.partition.writing.write_refusals import (
    check_key,
    key_full,
    misplaced,
    missing,
    precondition_failed,
    taken,
    too_many_changes,
)
from armillary.storage.engine import Txn

PathPrefixes = dict[str, bytes]  # index path -> prefix of its term keys
Gone = tuple[ItemHeader, str, bytes, bytes, list[bytes]]  # an item to remove: id, rid, as stored, what else to delete
_OPERATION_UNITS = 600  # units of work, besides the terms


class Writer:
    def __init__(
        self,
        txn: Txn,
        schema: Schema,
        head: log.Head,
        paths: PathPrefixes,
        coverage: PathCoverage | None,
        now_s: float,
        key_range: KeyRange,
    ) -> None:
        self._txn = txn
        self._range = key_range
        self._schema = schema
        self._paths = paths  # read only: as far as durable
        self._coverage = coverage  # likewise
        self._now_s = now_s
        self._lsn = head.lsn + 1  # of all changes of this transaction
        self._steps = 0
        self.event_count = 0  # change stream events noted
        self.has_tombstones = False  # of items that it removed
        self.first_expiry: bytes | None = None  # the lowest expiry key that it put
        self.head = head
        self.new_paths: PathPrefixes = {}
        self.new_coverage: PathCoverage | None = None

    def apply(self, operation: Operation) -> Outcome:
        work.spend(_OPERATION_UNITS)
        match operation.verb:
            case Verb.CREATE:
                return self._create(operation)
            case Verb.UPSERT:
                return self._upsert(operation)
            case Verb.REPLACE:
                return self._replace(operation)
            case Verb.PATCH:
                return self._patch(operation)
            case Verb.MERGE:
                return self._merge(operation)
            case Verb.CHANGE:
                return self._change(operation)
            case Verb.DELETE:
                return self._delete(operation)
            case Verb.READ:
                return self._read(operation)

    @property
    def has_changed(self) -> bool:
        return self._steps > 0

    @property
    def change_count(self) -> int:
        return self._steps

    def finish(self) -> None:
        if self._steps:
            self._txn.put(layout.HEAD_KEY, self.head.pack())

    # The eight verbs.

    def _create(self, operation: Operation) -> Outcome:
        made = self._current_draft(operation)
        found = self._find(operation, removing_expired=True)
        if found is not None:
            charge_ru = charges.failed_write_ru(len(found[1]))
            raise precondition_failed(charge_ru) if operation.if_none_match == "*" else taken(made.item_id, charge_ru)
        return self._insert(operation, made)

    def _upsert(self, operation: Operation) -> Outcome:
        made = self._current_draft(operation)
        found = self._find(operation, removing_expired=True)
        if found is None:
            # The service creates the item even when If-Match names an etag.
            return self._insert(operation, made)
        rid, stored = found
        if operation.if_none_match == "*":
            raise precondition_failed(charges.failed_write_ru(len(stored)))
        return self._overwrite(operation, rid, stored, made)

    def _replace(self, operation: Operation) -> Outcome:
        rid, stored = self._existing(operation)
        self._check_etag(operation, rid, stored)
        made = self._current_draft(operation)
        if made.item_id != operation.item_id:
            self._rename(operation, made.item_id, rid)
        return self._overwrite(operation, rid, stored, made)

    def _rename(self, operation: Operation, item_id: str, rid: int) -> None:
        """Give an item another id in its logical partition; it keeps its rid."""
        if self._find(replace(operation, item_id=item_id), removing_expired=True) is not None:
            raise taken(item_id, charges.failed_write_ru())
        self._txn.delete(layout.id_key(operation.epk, operation.item_id))
        self._txn.put(layout.id_key(operation.epk, item_id), rid.to_bytes(8, "big"))

    def _patch(self, operation: Operation) -> Outcome:
        assert operation.patch is not None
        rid, stored = self._existing(operation)
        self._check_etag(operation, rid, stored)
        document = documents.json_document(stored, self._schema)
        if operation.condition is not None and not operation.condition(document):
            raise precondition_failed(charges.failed_write_ru(len(stored)))
        key = self._schema.key
        patched = operation.patch.apply(document, key.steps if key is not None else ())
        check_key(self._schema, operation, patched)
        made = draft(self._schema, patched, int(self._now_s), operation.directive)
        outcome = self._overwrite(operation, rid, stored, made)
        outcome.patch_operations = len(operation.patch.operations)
        outcome.charge_ru += charges.PATCH_OPERATION_RU * outcome.patch_operations
        return outcome

    def _merge(self, operation: Operation) -> Outcome:
        """The draft's properties over those of the item. Without If-Match the item need not exist: then the draft is
        inserted."""
        if operation.if_match is None and self._find(operation, removing_expired=True) is None:
            return self._insert(operation, self._current_draft(operation))
        assert operation.draft is not None
        rid, stored = self._existing(operation)
        self._check_etag(operation, rid, stored)
        merged = {**documents.json_document(stored, self._schema), **operation.draft.document}
        check_key(self._schema, operation, merged)
        made = draft(self._schema, merged, int(self._now_s), operation.directive)
        return self._overwrite(operation, rid, stored, made)

    def _change(self, operation: Operation) -> Outcome:
        """Compute a document's new state inside the transaction, so that no other write can come between."""
        rid, stored = self._existing(operation)
        before, document = documents.bson_bytes(stored), documents.bson_document(stored)
        changed = operation.changed(document, before)
        becomes = changed.after
        if becomes is None:
            charge_ru = charges.failed_write_ru(len(stored))
            return Outcome(Result.NOT_MODIFIED, before, None, lsn_of(stored), charge_ru, before=before, changed=changed)
        check_key(self._schema, operation, becomes, is_bson=True)
        made = bson_draft(self._schema, becomes, encode(becomes), int(self._now_s), operation.directive)
        if made.item_id != operation.item_id:
            raise Failure(Kind.INTERNAL, "The change of a document would give it another id.")
        try:
            outcome = self._overwrite(operation, rid, stored, made, document)
        except Failure as failure:
            if failure.kind is Kind.CONFLICT:
                failure.details = {**failure.details, "document": becomes}  # whose values are taken
            raise
        outcome.before, outcome.changed = before, changed
        return outcome

    def _delete(self, operation: Operation) -> Outcome:
        rid, stored = self._existing(operation)
        self._check_etag(operation, rid, stored)
        before = changed = None
        if operation.change is not None:
            before = documents.bson_bytes(stored)
            changed = operation.changed(documents.bson_document(stored), before)
            if not changed.is_match:
                return Outcome(Result.NOT_MODIFIED, None, None, lsn_of(stored), charges.failed_write_ru(len(stored)))
        charged = self._remove(operation.epk, operation.item_id, rid, stored, log.ITEM_DELETED)
        old_bytes = len(payload_of(stored))
        charge_ru = charges.delete_ru(old_bytes, charged)
        return Outcome(Result.DELETED, None, None, self.head.lsn, charge_ru, old_bytes, charged, 0, before, changed)

    def _read(self, operation: Operation) -> Outcome:
        rid, stored = self._existing(operation)
        header, payload = unpack_header(stored), documents.json_text(stored, self._schema)
        etag = items.etag(rid, header.lsn, header.step, header.ts)
        charge_ru = charges.read_ru(len(payload))
        if operation.if_none_match is not None and operation.if_none_match in ("*", etag):
            return Outcome(Result.NOT_MODIFIED, None, etag, header.lsn, charge_ru)
        return Outcome(Result.READ, payload, etag, header.lsn, charge_ru)

    # Finding.

    def _find(self, operation: Operation, *, removing_expired: bool = False) -> tuple[int, bytes] | None:
        found = self._txn.get(layout.id_key(operation.epk, operation.item_id))
        if found is None:
            return None
        rid = int.from_bytes(found, "big")
        stored = self._txn.get(layout.item_key(rid))
        assert stored is not None, "an id without its item"
        is_live = self._schema.is_live(unpack_header(stored), self._now_s)
        if not is_live and not operation.is_any:
            if removing_expired:
                self._remove(operation.epk, operation.item_id, rid, stored, log.ITEM_EXPIRED)
            return None
        return rid, stored

    def _existing(self, operation: Operation) -> tuple[int, bytes]:
        found = self._find(operation)
        if found is None:
            raise missing(operation.item_id)
        return found

    def _check_etag(self, operation: Operation, rid: int, stored: bytes) -> None:
        wanted = operation.if_match
        if wanted is None or wanted == "*":
            return
        header = unpack_header(stored)
        if wanted != items.etag(rid, header.lsn, header.step, header.ts):
            raise precondition_failed(charges.failed_write_ru(len(stored)))

    def _current_draft(self, operation: Operation) -> Draft:
        made = operation.draft
        assert made is not None and made.rules is not None, "made ready by the visit"
        if made.rules.number != self._schema.rules.number:
            # The container's policy changed between the request's arrival and its transaction.
            return redraft(self._schema, made, operation.directive)
        return made

    def _as_stored(self, operation: Operation, stored: bytes, made: Draft) -> Draft:
        """A BSON document that is written through the SQL door stays BSON if it can."""
        if made.format == FORMAT_BSON or stored[0] == FORMAT_JSON:
            return made
        rebuilt = documents.rebuilt_bson(made.document, stored)
        if rebuilt is None:
            return made
        encoded, document = rebuilt
        made = bson_draft(self._schema, document, encoded, made.ts, operation.directive)
        items.check_size(len(encoded))
        return made

    # Changing.

    def _insert(self, operation: Operation, made: Draft) -> Outcome:
        head, txn, epk, item_terms = self.head, self._txn, operation.epk, made.terms
        rid = head.next_rid
        head.next_rid += 1
        if has_unique(self._schema):
            self._move_unique(epk, rid, [], entries_of(self._schema, made))
        header, payload, etag = self._seal(made, epk, rid)
        self._note_paths(item_terms, is_first=head.item_count == 0)
        self._resize_stored(epk, 1, len(payload), operation)
        packed_rid = rid.to_bytes(layout.RID_BYTES, "big")
        txn.put(layout.ITEMS + packed_rid, pack_item(header, payload))
        txn.put(layout.id_key(epk, made.item_id), packed_rid)
        txn.put(layout.MEMBERS + epk + packed_rid, b"")
        put_terms(txn, self._paths, self._term_prefix, item_terms.terms, rid)
        self._put_expiry(header, rid)
        if self._schema.keeps_events:
            self._note_event(change_stream_events.INSERT, epk, rid, None, made.bson())
        if self._schema.versions_number:
            self._note_version(versions.CREATED, epk, rid, None)
        terms = item_terms.charged + len(self._schema.unique.paths)
        charge_ru = charges.create_ru(len(payload), terms)
        answered = payload if made.format == FORMAT_JSON else made.text
        return Outcome(Result.CREATED, answered, etag, header.lsn, charge_ru, 0, terms)

    def _overwrite(
        self, operation: Operation, rid: int, stored: bytes, made: Draft, document: Document | None = None
    ) -> Outcome:
        """`document`: the stored document, if it was decoded already."""
        self._check_etag(operation, rid, stored)
        txn, epk = self._txn, operation.epk
        before, before_payload = unpack_header(stored), payload_of(stored)
        if document is None or before.format == FORMAT_JSON:
            before_terms = self._terms_of(before, before_payload)
        else:
            before_terms = documents.document_terms(self._schema.rules_of(before).indexing, before, document)
        is_answered_as_json = made.format == FORMAT_JSON
        if stored[0] != FORMAT_JSON:
            made = self._as_stored(operation, stored, made)
        if has_unique(self._schema):
            self._move_unique(
                epk, rid, entries_in(self._schema, before, before_payload), entries_of(self._schema, made)
            )
        txn.delete(layout.change_key(before.lsn, before.step, rid))
        header, payload, etag = self._seal(made, epk, rid)
        self._resize_stored(epk, 0, len(payload) - len(before_payload), operation)
        becomes = pack_item(header, payload)
        txn.put(layout.item_key(rid), becomes)
        changed = self._move_terms(rid, before_terms, made.terms)
        self._note_paths(made.terms)
        self._delete_expiry(before, rid)
        self._put_expiry(header, rid)
        if self._schema.keeps_events:
            self._note_event(
                change_stream_events.kind_of(operation), epk, rid, documents.bson_document(stored), made.bson()
            )
        if self._schema.versions_number:
            self._note_version(versions.REPLACED, epk, rid, stored)
        charge_ru = charges.replace_ru(len(before_payload), len(payload), changed)
        answered = payload
        if made.format != FORMAT_JSON:
            answered = documents.json_text(becomes, self._schema) if is_answered_as_json else made.text
            etag = items.etag_in(answered) if is_answered_as_json else ""
        return Outcome(Result.REPLACED, answered, etag, header.lsn, charge_ru, len(before_payload), changed)

    def _remove(self, epk: bytes, item_id: str, rid: int, stored: bytes, kind: int) -> int:
        """Remove an item from every key space, leaving a tombstone. Returns the number of charged terms."""
        work.spend(_OPERATION_UNITS)
        header, payload = unpack_header(stored), payload_of(stored)
        terms = self._terms_of(header, payload)
        delete_terms(self._txn, self._term_prefix, terms.terms, rid)
        for constraint, values in entries_in(self._schema, header, payload):
            work.spend(10)
            self._txn.delete(layout.unique_key(epk, constraint, values))
        self._take_out(kind, [(header, item_id, rid.to_bytes(layout.RID_BYTES, "big"), stored, [])])
        return terms.charged + self._schema.unique.count

    def _take_out(self, kind: int, gone: Sequence[Gone]) -> None:
        """Remove items from the key spaces that all items are in, and write their tombstones."""
        schema, put, now_s, lsn = self._schema, self._txn.put, int(self._now_s), self._lsn
        self.has_tombstones = self.has_tombstones or bool(gone)
        deleted: list[bytes] = []
        for header, item_id, packed_rid, stored, keys in gone:
            epk, name = header.epk, item_id.encode()
            place = layout.CHANGES + place_of(stored) + packed_rid
            deleted += keys
            deleted += (layout.ITEMS + packed_rid, layout.IDS + epk + name, layout.MEMBERS + epk + packed_rid, place)
            when = expires_s(header, schema.rules_of(header).default_ttl)
            if when is not None:
                deleted.append(layout.EXPIRY + when.to_bytes(8, "big") + packed_rid)
            rid = int.from_bytes(packed_rid, "big")
            put(layout.change_key(lsn, self._next_step(), rid), log.pack_tombstone(kind, now_s, epk, name))
            self._resize_stored(epk, -1, FIXED_HEADER_BYTES + len(epk) - len(stored))
            if schema.keeps_events:
                self._note_event(change_stream_events.DELETE, epk, rid, documents.bson_document(stored), None)
            if schema.versions_number:
                self._note_version(versions.EXPIRED if kind == log.ITEM_EXPIRED else versions.DELETED, epk, rid, stored)
        self._txn.delete_many(deleted)

    def _seal(self, made: Draft, epk: bytes, rid: int) -> tuple[ItemHeader, bytes, str]:
        """Give a draft its lsn, etag and system properties, and write its change entry."""
        if not self._range.contains(epk):
            raise misplaced(made.item_id, self._range)
        lsn, step = self._lsn, self._next_step()
        schema, etag = self._schema, ""
        if made.format == FORMAT_JSON:
            etag = items.etag(rid, lsn, step, made.ts)
            rid_text = item_rid_text(schema.rid, rid)
            payload = made.text + items.close_text(rid_text, f"{schema.self_link}docs/{rid_text}/", etag, made.ts)
            items.check_size(len(payload))
        else:
            payload = documents.bson_payload(rid, made.text)
        flags = FLAG_INDEXED if made.is_indexed else 0
        assert made.rules is not None
        header = new_tuple(ItemHeader, (made.format, flags, made.rules.number, lsn, made.ts, made.ttl, epk, step))
        self._txn.put(layout.change_key(lsn, step, rid), log.WRITTEN)
        return header, payload, etag

    def _note_event(self, kind: str, epk: bytes, rid: int, before: Document | None, after: Document | None) -> None:
        """Note a change stream event at the place of the last change entry."""
        noted = change_stream_events.noted(self._schema, kind, epk, before, after, self._now_s)
        change_stream_events.put_event(self._txn, self._lsn, self._steps - 1, rid, noted)
        self.event_count += 1

    def _note_version(self, kind: int, epk: bytes, rid: int, stored: bytes | None) -> None:
        """Note a version entry where all versions are kept; `stored` is the item before the change."""
        versions.put_version(self._txn, kind, int(self._now_s), (self._lsn, self._steps - 1, rid), epk, stored)

    def _next_step(self) -> int:
        if self._steps == limits.TRANSACTION_CHANGES_MAX:
            raise too_many_changes()
        self.head.lsn = self._lsn
        self._steps += 1
        return self._steps - 1

    # The key spaces besides the item.

    def _terms_of(self, header: ItemHeader, payload: bytes) -> ItemTerms:
        return documents.item_terms(self._schema.rules_of(header).indexing, header, payload)

    def _move_terms(self, rid: int, before: ItemTerms, after: ItemTerms) -> int:
        """Replace one set of terms by another. Returns the number of charged terms removed or added."""
        removed, added = differences(before.terms, after.terms)
        delete_terms(self._txn, self._term_prefix, removed, rid)
        put_terms(self._txn, self._paths, self._term_prefix, added, rid)
        return count_charged(removed) + count_charged(added)

    def _term_prefix(self, path: str) -> bytes:
        """The prefix of a path's term keys. A path that is new to the partition gets a number here."""
        prefix = self._paths.get(path) or self.new_paths.get(path)
        if prefix is None:
            key = layout.path_key(path)
            stored = self._txn.get(key)
            if stored is None:
                stored = self.head.next_path.to_bytes(layout.PATH_BYTES, "big")
                self.head.next_path += 1
                self._txn.put(key, stored)
            prefix = self.new_paths[path] = layout.TERMS + stored
        return prefix

    def _note_paths(self, terms: ItemTerms, *, is_first: bool = False) -> None:
        """Update the path coverage."""
        known, rules_number = self._coverage, self._schema.rules.number
        if (
            known is not None
            and known.generation == self.head.coverage_generation
            and known.holds(rules_number, terms.terms)
        ):
            return
        becomes = note_item(self._txn, self.head, rules_number, terms.terms, self._lsn, is_first=is_first)
        if becomes is not None:
            self._coverage = self.new_coverage = becomes

    def _move_unique(self, epk: bytes, rid: int, old: Entries, new: Entries) -> None:
        move_entries(self._txn, self._schema, (epk, rid), old, new, self._release_if_expired)

    def _release_if_expired(self, epk: bytes, rid: int) -> bool:
        """An expired item no longer holds its unique values, even if it has not been swept yet."""
        stored = self._txn.get(layout.item_key(rid))
        assert stored is not None, "a unique value without its item"
        if self._schema.is_live(unpack_header(stored), self._now_s):
            return False
        self._remove(epk, documents.item_id(stored), rid, stored, log.ITEM_EXPIRED)
        return True

    def _put_expiry(self, header: ItemHeader, rid: int) -> None:
        default_ttl = self._schema.rules.default_ttl
        when = None if default_ttl is None else expires_s(header, default_ttl)
        if when is not None:
            self._expire_at(when, rid)

    def _expire_at(self, when: int, rid: int) -> None:
        key = layout.expiry_key(when, rid)
        self._txn.put(key, b"")
        self.first_expiry = min(key, self.first_expiry or key)

    def _delete_expiry(self, header: ItemHeader, rid: int) -> None:
        when = expires_s(header, self._schema.rules_of(header).default_ttl)
        if when is not None:
            self._txn.delete(layout.expiry_key(when, rid))

    def _resize_stored(self, epk: bytes, items_added: int, bytes_added: int, writing: Operation | None = None) -> None:
        key = layout.size_key(epk)
        stored = self._txn.get(key)
        if stored is None:
            assert writing is not None, "removing from an empty logical partition"
            stored = pack_size(LogicalSize(0, 0, to_header(writing.key)))
        item_count, size_bytes, value = grown(stored, items_added, bytes_added)
        # Reads, deletes and updates that shrink are allowed; only growth is refused.
        if writing is not None and bytes_added > 0 and size_bytes > self._schema.logical_partition_bytes_max:
            raise key_full(self._schema.logical_partition_bytes_max)
        self._txn.put(key, value) if item_count else self._txn.delete(key)
        self.head.item_count += items_added
        self.head.size_bytes += bytes_added
