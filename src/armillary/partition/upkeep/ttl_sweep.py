"""The TTL sweep of a partition: deleting expired items, many in one transaction. Nothing is answered or charged, so
each item is loaded once, the term keys of small items are made without an intermediate list, and the sizes of logical
partitions are written once per transaction. The result is the same as after any other delete.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from armillary import limits, work
from armillary.model import documents, layout
from armillary.model.encoding import FLAG_INDEXED, FORMAT_JSON, ItemHeader, payload_of, unpack_header
from armillary.partition.history import log
from armillary.partition.operations import Operation
from armillary.partition.partition import Partition
from armillary.partition.upkeep.background_throttle import Slice
from armillary.partition.writing.index_entries import delete_terms
from armillary.partition.writing.writer import Gone, Writer
from armillary.storage.engine import Txn, View

_ITEM_UNITS, _KEY_UNITS = 100, 12  # units of work, for a small item and for each of its keys


class _Prefixes(dict[str, bytes]):
    """Path -> term key prefix, filled on demand."""

    def __init__(self, prefix_of: Callable[[str], bytes]) -> None:
        self._prefix_of = prefix_of

    def __missing__(self, path: str) -> bytes:
        prefix = self[path] = self._prefix_of(path)
        return prefix


class Sweeper(Writer):
    """The Writer of one transaction of the sweep."""

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
        self._take_out(log.ITEM_EXPIRED, gone)
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
        return header, documents.loaded_id(form, document), rid, stored, keys

    def finish(self) -> None:
        for epk, (item_count, size_bytes) in self._sizes.items():
            super()._resize_stored(epk, item_count, size_bytes)
        self._sizes.clear()
        super().finish()

    def _resize_stored(self, epk: bytes, items_added: int, bytes_added: int, writing: Operation | None = None) -> None:
        item_count, size_bytes = self._sizes.get(epk, (0, 0))
        self._sizes[epk] = (item_count + items_added, size_bytes + bytes_added)


class Sweep:
    """One pass over the expired items of a partition, one slice per transaction. Several transactions may be under way
    at a time, so that one sync makes all of them durable: each continues where the one before it ended."""

    def __init__(self, partition: Partition, now_s: float) -> None:
        self._partition = partition
        self._number = partition.marks.begin_sweep()
        self._next_key = partition.marks.expiry_from
        self._end_key = layout.expiry_key(int(now_s) + 1, 0)
        self._is_over = False
        self._is_clean = True  # all items that were examined are deleted
        self._due_key = self._end_key  # the first expiry key that is left
        self._pending: deque[asyncio.Future[int]] = deque()

    @property
    def is_over(self) -> bool:
        return self._is_over and not self._pending

    async def go_on(self, transactions: int = 1) -> int:
        """Keep so many transactions under way, and wait for the first of them. Returns how many items it deleted."""
        while len(self._pending) < transactions and not self._is_over:
            self._pending.append(asyncio.ensure_future(self._partition.transact(self._batch, Sweeper)))
        try:
            deleted = await self._pending[0]
        except BaseException:
            self._is_over, self._is_clean = True, False
            await asyncio.gather(*self._pending, return_exceptions=True)
            raise
        finally:
            self._pending.popleft()
        if self.is_over and self._is_clean:
            self._partition.marks.end_sweep(self._number, self._due_key)
        return deleted

    def _batch(self, txn: Txn, sweeper: Sweeper) -> int:
        if self._is_over:
            return 0
        slice_, entries = Slice(self._partition.clock), txn.scan(self._next_key, self._end_key)
        left, removed = limits.SWEEP_ITEMS_MAX, 0
        keys: list[bytes] = []
        while left and not slice_.is_over:
            if not keys:
                keys = [key for key, _ in islice(entries, min(left, limits.SWEEP_PORTION_ITEMS))]
            if not keys:
                self._is_over = True
                later = txn.scan(self._end_key, layout.space_end(layout.EXPIRY))
                self._due_key = next((key for key, _ in later), layout.space_end(layout.EXPIRY))
                break
            looked_at, gone = sweeper.expire([key[-layout.RID_BYTES :] for key in keys], slice_)
            # Not from the beginning of the space: each scan would pass over the tombstones of what was just deleted
            # there.
            self._next_key = keys[looked_at - 1] + b"\x00"
            self._is_clean = self._is_clean and gone == looked_at
            left, removed, keys = left - looked_at, removed + gone, keys[looked_at:]
        return removed


async def sweep_expired(partition: Partition, now_s: float) -> int:
    """Delete all expired items. Returns how many."""
    sweep, deleted = Sweep(partition, now_s), 0
    while not sweep.is_over:
        deleted += await sweep.go_on()
    return deleted


def has_expired(view: View, partition: Partition, now_s: float) -> bool:
    """Whether there may be expired items."""
    return next(iter(view.scan(partition.marks.expiry_from, layout.expiry_key(int(now_s) + 1, 0))), None) is not None
