"""The TTL sweep of a partition: deleting expired items, many in one transaction. Nothing is answered or charged, so
each item is loaded once, the term keys of small items are made without an intermediate list, and the sizes of logical
partitions are written once per transaction. The result is the same as after any other delete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary import limits, work
from armillary.model import documents, layout
from armillary.model.encoding import FLAG_INDEXED, FORMAT_JSON, ItemHeader, payload_of, unpack_header
from armillary.partition.history import log
from armillary.partition.operations import Operation
from armillary.partition.upkeep.time_slices import Slice
from armillary.partition.writing.term_changes import delete_terms
from armillary.partition.writing.writer import Writer

_ITEM_UNITS, _KEY_UNITS = 100, 12  # units of work, for a small item and for each of its keys

Gone = tuple[ItemHeader, str, bytes, bytes, int, list[bytes]]  # the arguments of `Writer._take_out`


class _Prefixes(dict[str, bytes]):
    """Path -> term key prefix, filled on demand."""

    def __init__(self, prefix_of: Callable[[str], bytes]) -> None:
        self._prefix_of = prefix_of

    def __missing__(self, path: str) -> bytes:
        prefix = self[path] = self._prefix_of(path)
        return prefix


class Sweeper(Writer):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._prefixes = _Prefixes(self._term_prefix)
        self._sizes: dict[bytes, tuple[int, int]] = {}  # items and bytes removed from each logical partition

    def expire(self, rids: Sequence[bytes], slice_: Slice) -> tuple[int, int]:
        """Delete those items that have expired, as many as fit the slice and a portion. Returns how many were examined
        and how many deleted."""
        # Step by step over many items rather than item by item, which takes a fifth less time: each step stays in the
        # cache.
        schema, gone, looked_at = self._schema, [], 0
        for rid, stored in self._portion(rids):
            looked_at, size_bytes = looked_at + 1, 0
            if stored is not None:
                header = unpack_header(stored)
                if not schema.is_live(header, self._now_s):
                    gone.append(self._without_terms(header, rid, stored))
                    size_bytes = len(stored)
            if not slice_.takes(size_bytes):
                break
        for each in gone:
            self._take_out(*each)
        return looked_at, len(gone)

    def _portion(self, rids: Sequence[bytes]) -> list[tuple[bytes, bytes | None]]:
        """The first items as stored: at least one, and no more than may be read ahead of the slice."""
        portion, left_bytes, get = [], limits.SWEEP_PORTION_BYTES, self._txn.get
        for rid in rids:
            stored = get(layout.ITEMS + rid)
            portion.append((rid, stored))
            left_bytes -= len(stored) if stored is not None else 0
            if left_bytes <= 0:
                break
        return portion

    def _without_terms(self, header: ItemHeader, rid: bytes, stored: bytes) -> Gone:
        """Delete the terms of an item, and return what else is to be deleted. The term keys of a small item are among
        these."""
        form, schema = header.format, self._schema
        indexing = schema.rules_of(header).indexing
        document = documents.loaded(form, payload_of(stored))
        keys: list[bytes] | None = None
        if not header.flags & FLAG_INDEXED:
            keys = []
        elif form == FORMAT_JSON and len(stored) <= limits.SWEEP_SMALL_BYTES:
            keys = indexing.term_keys(document, header.ts, self._prefixes, rid)
        if keys is None:
            terms = documents.loaded_terms(indexing, header, document).terms
            delete_terms(self._txn, self._term_prefix, terms, int.from_bytes(rid, "big"))
            keys = []
        if schema.unique.paths or indexing.unique_fields:
            entries = documents.unique_entries(schema.unique, indexing, form, document)
            keys += [layout.unique_key(header.epk, *entry) for entry in entries]
        work.spend(_ITEM_UNITS + _KEY_UNITS * len(keys))
        return header, documents.loaded_id(form, document), rid, stored, log.ITEM_EXPIRED, keys

    def finish(self) -> None:
        for epk, (item_count, size_bytes) in self._sizes.items():
            super()._resize_stored(epk, item_count, size_bytes)
        self._sizes.clear()
        super().finish()

    def _resize_stored(self, epk: bytes, items_added: int, bytes_added: int, writing: Operation | None = None) -> None:
        item_count, size_bytes = self._sizes.get(epk, (0, 0))
        self._sizes[epk] = (item_count + items_added, size_bytes + bytes_added)
