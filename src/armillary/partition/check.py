"""Consistency check of a partition's store, for `armillary check` and the tests. Every item is compared with every key
space that refers to it, in both directions: each entry that an item implies must exist, and no other entry may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from armillary.errors import Failure
from armillary.model import documents, items, layout
from armillary.model.encoding import FORMAT_BSON, FORMAT_JSON, ItemHeader, payload_of, unpack_header
from armillary.model.keys import NO_KEY, to_header
from armillary.model.layout import unpack_size
from armillary.model.ranges import KeyRange
from armillary.model.resources import first_item_rid, item_rid_text
from armillary.partition.history import log, versions
from armillary.partition.history.change_stream_events import unpack_event
from armillary.partition.history.retryable_write_records import unpack_record
from armillary.partition.schema import Schema, expires_s
from armillary.partition.writing.path_coverage import NOTHING, load_coverage, trusted_coverage
from armillary.storage.engine import View

SPACES = (
    layout.CHANGES,
    layout.EVENTS,
    layout.EXPIRY,
    layout.ITEMS,
    layout.IDS,
    layout.MEMBERS,
    layout.META,
    layout.RECORDS,
    layout.SIZES,
    layout.TERMS,
    layout.UNIQUE,
    layout.VERSIONS,
    layout.IMAGES,
)


def check_partition(view: View, schema: Schema, key_range: KeyRange) -> Iterator[str]:
    """One sentence for each inconsistency; yields nothing if the store is consistent."""
    yield from _Check(view, schema, key_range).run()


class _Check:
    def __init__(self, view: View, schema: Schema, key_range: KeyRange) -> None:
        self._view = view
        self._schema = schema
        self._range = key_range
        self._head = log.load_head(view, first_item_rid(key_range.id), 0)
        self._coverage = trusted_coverage(view, self._head) or NOTHING
        self._paths: dict[str, int] = {}
        self._counts: Counter[bytes] = Counter()
        self._expected: Counter[bytes] = Counter()
        self._sizes: dict[bytes, tuple[int, int, str]] = {}

    def run(self) -> Iterator[str]:
        yield from self._check_spaces()
        yield from self._check_paths()
        yield from self._check_coverage()
        size_bytes = 0
        for key, stored in self._view.scan(layout.ITEMS, layout.space_end(layout.ITEMS)):
            rid = int.from_bytes(key[1:], "big")
            try:
                header, payload = unpack_header(stored), payload_of(stored)
                document = documents.json_document(stored, self._schema)
                found = list(self._check_item(rid, header, payload, document))
            except (Failure, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
                yield f"item {rid} cannot be read: {error!r}"
                continue
            size_bytes += len(payload)
            yield from found
        yield from self._check_changes()
        yield from self._check_sizes()
        yield from self._check_records()
        yield from self._check_events()
        yield from self._check_versions()
        for space, name in ((layout.IDS, "ids"), (layout.MEMBERS, "members"), (layout.TERMS, "terms")):
            yield from self._check_count(space, name)
        yield from self._check_count(layout.UNIQUE, "unique values")
        yield from self._check_count(layout.EXPIRY, "expiry entries")
        if self._head.item_count != self._counts[layout.ITEMS]:
            yield f"the head counts {self._head.item_count} items, there are {self._counts[layout.ITEMS]}"
        if self._head.size_bytes != size_bytes:
            yield f"the head counts {self._head.size_bytes} bytes, the items have {size_bytes}"

    def _check_spaces(self) -> Iterator[str]:
        for key, _ in self._view.scan(b"", b"\xff" * 8):
            if key[:1] in SPACES:
                self._counts[key[:1]] += 1
            else:
                yield f"a key in no known space: {key[:16].hex()}"

    def _check_paths(self) -> Iterator[str]:
        prefix = layout.path_key("")
        owners: dict[int, str] = {}
        for key, value in self._view.scan(prefix, layout.prefix_end(prefix)):
            path, number = key[len(prefix) :].decode(), int.from_bytes(value, "big")
            self._paths[path] = number
            if number in owners:
                yield f"index paths {owners[number]} and {path} share the number {number}"
            if number >= self._head.next_path:
                yield f"index path {path} has the number {number}, which is yet to be given"
            owners[number] = path

    def _check_coverage(self) -> Iterator[str]:
        """A head without a generation was written by an older format, or has no path coverage."""
        named, stored = self._head.coverage_generation, load_coverage(self._view)
        if named and (stored is None or stored.generation != named):
            found = stored.generation if stored is not None else None
            yield f"the head names generation {named} of the paths that all items have, stored is {found}"

    def _check_item(self, rid: int, header: ItemHeader, payload: bytes, document: dict[str, object]) -> Iterator[str]:
        what = f"item {rid} (id {document.get('id')!r})"
        epk = header.epk
        if header.format not in (FORMAT_JSON, FORMAT_BSON):
            yield f"{what} has the unknown format {header.format}"
        if not self._range.low <= epk < self._range.high:
            yield f"{what} lies outside the partition's range"
        if rid >= self._head.next_rid:
            yield f"{what} has a rid that is not allocated yet"
        if header.lsn > self._head.lsn:
            yield f"{what} has lsn {header.lsn}, the partition is at {self._head.lsn}"
        yield from self._check_key(what, epk, document)
        yield from self._check_system_properties(what, rid, header, document)
        if self._view.get(layout.id_key(epk, str(document["id"]))) != rid.to_bytes(8, "big"):
            yield f"{what} is not found by its id"
        if self._view.get(layout.member_key(epk, rid)) is None:
            yield f"{what} is not a member of its logical partition"
        if self._view.get(layout.change_key(header.lsn, header.step, rid)) != log.WRITTEN:
            yield f"{what} has no change entry at its lsn {header.lsn}"
        self._expected[layout.IDS] += 1
        self._expected[layout.MEMBERS] += 1
        yield from self._check_index(what, rid, header, payload)
        count, size, text = self._sizes.get(epk, (0, 0, self._key_text(document)))
        self._sizes[epk] = (count + 1, size + len(payload), text)

    def _check_key(self, what: str, epk: bytes, document: dict[str, object]) -> Iterator[str]:
        definition = self._schema.key
        if definition is None:
            if epk:
                yield f"{what} has a partition key in a container without one"
            return
        key = definition.extract(document)
        if key and definition.effective_key(key) != epk:
            yield f"{what} is stored under another partition key than {to_header(key)}"

    def _key_text(self, document: dict[str, object]) -> str:
        return to_header(self._schema.key.extract(document) if self._schema.key is not None else NO_KEY)

    def _check_system_properties(
        self, what: str, rid: int, header: ItemHeader, document: dict[str, object]
    ) -> Iterator[str]:
        wanted = {
            "_rid": item_rid_text(self._schema.rid, rid),
            "_etag": items.etag(rid, header.lsn, header.step, header.ts),
            "_ts": header.ts,
        }
        for name, value in wanted.items():
            if document.get(name) != value:
                yield f"{what} has {name} {document.get(name)!r} instead of {value!r}"

    def _check_index(self, what: str, rid: int, header: ItemHeader, payload: bytes) -> Iterator[str]:
        rules = self._schema.rules_of(header)
        terms = documents.item_terms(rules.indexing, header, payload).terms
        self._expected[layout.TERMS] += len(terms)
        for path, term in terms:
            path_number = self._paths.get(path)
            if path_number is None or self._view.get(layout.term_key(path_number, term, rid)) is None:
                yield f"{what} lacks its index term for {path}"
        if header.policy == self._coverage.rules_number:
            lacking = self._coverage.paths.difference([path for path, _ in terms])
            for path in sorted(lacking):
                yield f"{what} has no term for {path}, which is down as a path that all items have"
        entries = documents.stored_unique_entries(self._schema.unique, rules.indexing, header.format, payload)
        for constraint, values in entries:
            self._expected[layout.UNIQUE] += 1
            if self._view.get(layout.unique_key(header.epk, constraint, values)) != rid.to_bytes(8, "big"):
                yield f"{what} does not hold its values of unique key {constraint}"
        when = expires_s(header, rules.default_ttl)
        if when is not None:
            self._expected[layout.EXPIRY] += 1
            if self._view.get(layout.expiry_key(when, rid)) is None:
                yield f"{what} has no expiry entry at {when}"

    def _check_changes(self) -> Iterator[str]:
        written = 0
        for key, value in self._view.scan(layout.CHANGES, layout.space_end(layout.CHANGES)):
            lsn, change = log.change_lsn(key), log.unpack_change(key, value)
            if lsn > self._head.lsn:
                yield f"change {lsn} lies beyond the partition's lsn {self._head.lsn}"
            stored = self._view.get(layout.item_key(change.rid))
            if change.kind == log.ITEM_WRITTEN:
                written += 1
                if stored is None or layout.change_key(*_place(stored), change.rid) != key:
                    yield f"change {lsn} names item {change.rid}, which was not last written there"
            elif stored is not None:
                yield f"change {lsn} is the tombstone of item {change.rid}, which exists"
        if written != self._counts[layout.ITEMS]:
            yield f"there are {written} change entries for {self._counts[layout.ITEMS]} items"

    def _check_sizes(self) -> Iterator[str]:
        for key, value in self._view.scan(layout.SIZES, layout.space_end(layout.SIZES)):
            size = unpack_size(value)
            counted = self._sizes.pop(key[1:], None)
            if counted is None or counted[:2] != size[:2] or not self._is_same_key(counted[2], size.key_text):
                yield f"the logical partition {size.key_text} is down as {tuple(size)}, counted {counted}"
        for count, size_bytes, text in self._sizes.values():
            yield f"the logical partition {text} with {count} items and {size_bytes} bytes has no size entry"

    def _is_same_key(self, first: str, second: str) -> bool:
        """Compared as parsed keys: 1 and 1.0 are one key, and the stored text is that of the logical partition's first
        item."""
        if first == second or self._schema.key is None:
            return first == second
        return self._schema.key.parse_header(first) == self._schema.key.parse_header(second)

    def _check_records(self) -> Iterator[str]:
        for key, value in self._view.scan(layout.RECORDS, layout.space_end(layout.RECORDS)):
            try:
                unpack_record(value)
            except Failure as failure:
                yield f"record {key[1:].hex()}: {failure.message}"

    def _check_events(self) -> Iterator[str]:
        for key, value in self._view.scan(layout.EVENTS, layout.space_end(layout.EVENTS)):
            try:
                event = unpack_event(key, value)
            except (ValueError, KeyError):
                yield f"event {key[1:].hex()} cannot be read"
                continue
            if event.lsn > self._head.lsn:
                yield f"event {event.lsn} is beyond the head, {self._head.lsn}"

    def _check_versions(self) -> Iterator[str]:
        """Every version entry is consistent, and each item written since versions are kept has one."""
        number = self._schema.versions_number
        since = versions.since(self._view, number) if number else None
        if since is None:
            return
        images = written = 0
        for key, value in self._view.scan(layout.VERSIONS, layout.space_end(layout.VERSIONS)):
            entry = versions.unpack_entry(key, value)
            images += entry.before_key is not None
            what = f"version {entry.lsn} of item {int.from_bytes(entry.place[-8:], 'big')}"
            if entry.lsn > self._head.lsn:
                yield f"{what} is beyond the head, {self._head.lsn}"
            if not self._range.low <= entry.epk < self._range.high:
                yield f"{what} lies outside the partition's range"
            if entry.before_key is not None and self._view.get(entry.before_key) is None:
                yield f"{what} lacks the image of what it replaced"
            change = self._view.get(layout.CHANGES + entry.place)
            written += change == log.WRITTEN and entry.lsn > since
            if entry.is_write and change != log.WRITTEN and self._view.get(entry.image_key) is None:
                yield f"{what} is neither an image nor an item"
        if images != self._counts[layout.IMAGES]:
            yield f"there are {self._counts[layout.IMAGES]} images, the versions account for {images}"
        entries = self._view.scan(layout.change_key(since + 1), layout.space_end(layout.CHANGES))
        if written != (expected := sum(value == log.WRITTEN for _, value in entries)):
            yield f"{expected} items were written since versions are kept, there are versions of {written}"

    def _check_count(self, space: bytes, name: str) -> Iterator[str]:
        if self._counts[space] != self._expected[space]:
            yield f"there are {self._counts[space]} {name}, the items account for {self._expected[space]}"


def _place(stored: bytes) -> tuple[int, int]:
    header = unpack_header(stored)
    return header.lsn, header.step
