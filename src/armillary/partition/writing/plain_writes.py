"""Creates and upserts of small JSON items where the container asks for nothing unusual, in few steps: what `Writer`
does, as one function that reads the newest state and returns the keys to write. It is the quick form of the
transaction (`storage/transactions.py`).

Everything else gets None and is done by a `Writer`: refusals, new index paths, the first item of a partition, writes
that change the path coverage. tests/unit/doors/sql/test_quick_writes.py compares what both store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from orjson import loads

from armillary import limits
from armillary.model import charges, items, layout
from armillary.model.documents import item_terms
from armillary.model.encoding import (
    FLAG_INDEXED,
    FORMAT_JSON,
    ItemHeader,
    new_tuple,
    pack_item,
    payload_of,
    unpack_header,
)
from armillary.model.indexes.indexing import count_charged
from armillary.model.keys import to_header
from armillary.model.layout import LogicalSize, grown, pack_size
from armillary.model.ranges import KeyRange
from armillary.model.resources import item_rid_text
from armillary.partition.history import log
from armillary.partition.history.log import Head
from armillary.partition.operations import Draft, Operation, Outcome, Result, Verb
from armillary.partition.schema import Schema
from armillary.partition.writing.index_entries import Term, Terms, differences, has_unique
from armillary.partition.writing.path_coverage import PathCoverage
from armillary.storage.engine import Prepared

Get = Callable[[bytes], bytes | None]


class Written(Protocol):
    """What a partition takes over when a transaction is durable: a `Writer`, or a `PlainWritten`."""

    @property
    def head(self) -> Head: ...
    @property
    def event_count(self) -> int: ...
    @property
    def new_paths(self) -> Mapping[str, bytes]: ...
    @property
    def new_coverage(self) -> PathCoverage | None: ...


class PlainWritten:
    """That of a plain write: only the head has changed."""

    __slots__ = ("event_count", "head", "new_coverage", "new_paths")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.event_count = 0
        self.new_paths: Mapping[str, bytes] = _NO_PATHS
        self.new_coverage: PathCoverage | None = None


class Place(Protocol):
    """The partition."""

    range: KeyRange
    reached_lsn: int
    paths: dict[str, bytes]
    coverage: PathCoverage | None

    @property
    def is_open(self) -> bool: ...


class Shape(NamedTuple):
    """The index paths of an item in the order of its terms, resolved. Most items of a container share a few shapes."""

    prefixes: list[bytes]  # of their keys in the engine
    coverage: PathCoverage  # which an item of this shape leaves unchanged


_NO_PATHS: Final[Mapping[str, bytes]] = {}
_KEY_BYTES: Final = 48  # the usual size of a key with its overhead


class PlainWrites:
    """Of one partition."""

    __slots__ = ("_is_plain", "_looked_at", "_partition", "_schema", "_shapes")

    def __init__(self, partition: Place, schema: Schema) -> None:
        self._partition = partition
        self._schema = schema
        self._looked_at: Schema | None = None  # the state of the schema that `_is_plain` is about
        self._is_plain = False
        self._shapes: dict[tuple[str, ...], Shape] = {}

    def write(self, operation: Operation, get: Get, prefix: bytes) -> Prepared[tuple[Outcome, Written]] | None:
        partition, schema, made = self._partition, self._schema.as_it_is(), operation.draft
        if schema is not self._looked_at:
            self._looked_at, self._is_plain = schema, is_plain(schema)
        if not self._is_plain or made is None or made.made_terms is None or made.rules is not schema.rules:
            return None
        if operation.if_match is not None or operation.if_none_match is not None or made.format != FORMAT_JSON:
            return None
        stored_head, epk, key_range = get(prefix + layout.HEAD_KEY), operation.epk, partition.range
        if stored_head is None or not partition.is_open or not key_range.low <= epk < key_range.high:
            return None
        head = log.unpack_head(stored_head)
        shape = self._shape(made.made_terms.terms, head, prefix)
        if shape is None or not head.item_count:
            return None
        found = get(prefix + layout.IDS + epk + made.item_id.encode())
        head.lsn += 1
        if found is None:
            prepared = _insert(operation, made, get, prefix, schema, head, shape)
        elif operation.verb is Verb.UPSERT:
            prepared = self._overwrite(operation, made, get, prefix, schema, head, found)
        else:
            return None
        if prepared is not None and head.lsn > partition.reached_lsn:
            partition.reached_lsn = head.lsn
        return prepared

    def _shape(self, terms: Terms, head: Head, prefix: bytes) -> Shape | None:
        """None: a path is new here, or the item changes the path coverage."""
        coverage, rules_number = self._partition.coverage, self._schema.rules.number
        paths = tuple([path for path, _ in terms])
        shape = self._shapes.get(paths)
        if shape is None or shape.coverage is not coverage:
            if coverage is None or not coverage.holds(rules_number, terms):
                return None
            numbers = self._partition.paths
            if not numbers.keys() >= set(paths):
                return None
            prefixes = [prefix + numbers[path] for path in paths]
            if len(self._shapes) >= limits.ITEM_SHAPES_REMEMBERED_MAX:
                self._shapes.clear()
            shape = Shape(prefixes, coverage)
            if len(paths) <= limits.ITEM_SHAPE_PATHS_MAX:
                self._shapes[paths] = shape
        known = shape.coverage
        is_valid = known.generation == head.coverage_generation and known.rules_number == rules_number
        return shape if is_valid else None

    def _keys(self, terms: Sequence[Term], prefix: bytes, packed_rid: bytes) -> list[bytes]:
        """KeyError: a path is new to the partition."""
        numbers = self._partition.paths
        return [prefix + numbers[path] + term + packed_rid for path, term in terms]

    def _overwrite(
        self,
        operation: Operation,
        made: Draft,
        get: Get,
        prefix: bytes,
        schema: Schema,
        head: Head,
        packed_rid: bytes,
    ) -> Prepared[tuple[Outcome, Written]] | None:
        epk, item_key = operation.epk, prefix + layout.ITEMS + packed_rid
        stored = get(item_key)
        assert stored is not None, "an id without its item"
        before = unpack_header(stored)
        if len(stored) > limits.WORK_AT_ONCE_BYTES or before.format != FORMAT_JSON:
            return None  # its terms are made in steps
        before_payload = payload_of(stored)
        rules, changes = schema.rules_of(before), None
        if before.flags & FLAG_INDEXED and made.is_indexed:
            changes = rules.indexing.changes(loads(before_payload), made.document, before.ts, made.ts)
        if changes is None:
            removed, added = differences(item_terms(rules.indexing, before, before_payload).terms, made.terms.terms)
            charged = count_charged(removed) + count_charged(added)
        else:
            removed, added, charged = changes
        try:
            gone, to_come = self._keys(removed, prefix, packed_rid), self._keys(added, prefix, packed_rid)
        except KeyError:
            return None
        rid = int.from_bytes(packed_rid, "big")
        etag, payload = _closed(made, schema, rid, head.lsn)
        growth = len(payload) - len(before_payload)
        size_key = prefix + layout.SIZES + epk
        stored_size = get(size_key)
        if len(payload) > limits.ITEM_BYTES_MAX or stored_size is None:
            return None
        _, logical_bytes, size = grown(stored_size, 0, growth)
        if growth > 0 and logical_bytes > schema.logical_partition_bytes_max:
            return None
        head.size_bytes += growth
        gone.append(prefix + layout.change_key(before.lsn, before.step, rid))
        writes: dict[bytes, bytes | None] = dict.fromkeys(gone)
        writes.update(dict.fromkeys(to_come, b""))
        writes[prefix + layout.change_key(head.lsn, 0, rid)] = log.WRITTEN
        writes[item_key] = _sealed(made, head.lsn, epk, payload)
        writes[size_key] = size
        writes[prefix + layout.HEAD_KEY] = head.pack()
        charge_ru = charges.replace_ru(len(before_payload), len(payload), charged)
        outcome = Outcome(Result.REPLACED, payload, etag, head.lsn, charge_ru, len(before_payload), charged)
        return (outcome, PlainWritten(head)), writes, len(payload) + _KEY_BYTES * len(writes), True


def is_plain(schema: Schema) -> bool:
    """Whether writes to a container need nothing besides the item, its terms and the counts."""
    is_watched = schema.keeps_events or schema.versions_number or schema.cap is not None or schema.fence is not None
    return not is_watched and not has_unique(schema) and schema.rules.default_ttl is None


def _insert(
    operation: Operation, made: Draft, get: Get, prefix: bytes, schema: Schema, head: Head, shape: Shape
) -> Prepared[tuple[Outcome, Written]] | None:
    rid, lsn, epk = head.next_rid, head.lsn, operation.epk
    etag, payload = _closed(made, schema, rid, lsn)
    size_bytes = len(payload)
    size_key = prefix + layout.SIZES + epk
    stored_size = get(size_key) or pack_size(LogicalSize(0, 0, to_header(operation.key)))
    _, logical_bytes, size = grown(stored_size, 1, size_bytes)
    if size_bytes > limits.ITEM_BYTES_MAX or logical_bytes > schema.logical_partition_bytes_max:
        return None
    head.next_rid += 1
    head.item_count += 1
    head.size_bytes += size_bytes
    packed_rid = rid.to_bytes(layout.RID_BYTES, "big")
    terms, charged = made.terms
    keys = [path + term + packed_rid for path, (_, term) in zip(shape.prefixes, terms, strict=True)]
    writes: dict[bytes, bytes | None] = dict.fromkeys(keys, b"")
    writes[prefix + layout.ITEMS + packed_rid] = _sealed(made, lsn, epk, payload)
    writes[prefix + layout.IDS + epk + made.item_id.encode()] = packed_rid
    writes[prefix + layout.MEMBERS + epk + packed_rid] = b""
    writes[prefix + layout.change_key(lsn, 0, rid)] = log.WRITTEN
    writes[size_key] = size
    writes[prefix + layout.HEAD_KEY] = head.pack()
    charge_ru = charges.create_ru(size_bytes, charged)
    outcome = Outcome(Result.CREATED, payload, etag, lsn, charge_ru, 0, charged)
    return (outcome, PlainWritten(head)), writes, size_bytes + _KEY_BYTES * len(writes), False


def _closed(made: Draft, schema: Schema, rid: int, lsn: int) -> tuple[str, bytes]:
    """The etag, and the item's text with its system properties."""
    etag, rid_text = items.etag(rid, lsn, 0, made.ts), item_rid_text(schema.rid, rid)
    return etag, made.text + items.close_text(rid_text, f"{schema.self_link}docs/{rid_text}/", etag, made.ts)


def _sealed(made: Draft, lsn: int, epk: bytes, payload: bytes) -> bytes:
    """The item as it is stored, by the rules that hold."""
    assert made.rules is not None
    flags = FLAG_INDEXED if made.is_indexed else 0
    return pack_item(
        new_tuple(ItemHeader, (made.format, flags, made.rules.number, lsn, made.ts, made.ttl, epk, 0)), payload
    )
