"""A partition's log: the head (lsn and counters) and the change entries.

The lsn grows by one with every committed transaction and is never reused; session tokens and change-feed positions are
places in it. The changes space has one entry per item, at the lsn of its latest write, and one tombstone per delete;
the changes of one transaction share its lsn and are numbered by step, so a feed can keep them together. The item's rid
ends the key, because after a merge two transactions, one of each parent, may have the same lsn.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from armillary import limits
from armillary.model import layout
from armillary.model.encoding import epk_of, unpack_header
from armillary.storage.engine import View

_HEAD = struct.Struct(">QQQQII")
_HEAD_2 = struct.Struct(">QQQQI")  # format 2 has no generation
_TOMBSTONE = struct.Struct(">BIB")  # kind, time of the delete, length of the epk

ITEM_WRITTEN, ITEM_DELETED, ITEM_EXPIRED = 0, 1, 2
WRITTEN = bytes([ITEM_WRITTEN])  # the entry of an existing item: everything else is in its key


@dataclass(slots=True)
class Head:
    lsn: int
    next_rid: int  # the rid of the next new item
    item_count: int
    size_bytes: int
    next_path: int
    coverage_generation: int = 0  # of the path coverage (writing/path_coverage.py); 0: none is valid

    def pack(self) -> bytes:
        return _HEAD.pack(
            self.lsn, self.next_rid, self.item_count, self.size_bytes, self.next_path, self.coverage_generation
        )


def new_head(first_rid: int, first_lsn: int) -> Head:
    """The head of an empty partition."""
    return Head(first_lsn, first_rid, 0, 0, 1)


def load_head(view: View, first_rid: int, first_lsn: int) -> Head:
    stored = view.get(layout.HEAD_KEY)
    if stored is None:
        return new_head(first_rid, first_lsn)
    return unpack_head(stored)


def unpack_head(stored: bytes) -> Head:
    return Head(*(_HEAD if len(stored) == _HEAD.size else _HEAD_2).unpack(stored))


class Change(NamedTuple):
    rid: int
    kind: int
    deleted_s: int
    epk: bytes
    item_id: str


def pack_tombstone(kind: int, deleted_s: int, epk: bytes, item_id: bytes) -> bytes:
    return _TOMBSTONE.pack(kind, deleted_s, len(epk)) + epk + item_id


def unpack_change(key: bytes, value: bytes) -> Change:
    rid = int.from_bytes(key[-layout.RID_BYTES :], "big")
    if value[0] == ITEM_WRITTEN:
        return Change(rid, ITEM_WRITTEN, 0, b"", "")
    kind, deleted_s, epk_bytes = _TOMBSTONE.unpack_from(value)
    start = _TOMBSTONE.size
    return Change(rid, kind, deleted_s, value[start : start + epk_bytes], value[start + epk_bytes :].decode())


def change_lsn(key: bytes) -> int:
    """The lsn of a key in the changes space."""
    return int.from_bytes(key[1:9], "big")


# Reading.


class Transaction(NamedTuple):
    """The items that a transaction wrote and that were not written again since. After a merge, those of both
    transactions with this lsn."""

    lsn: int
    items: list[bytes]  # as stored, by step; after a merge, one transaction after the other


def transactions(view: View, after_lsn: int, last_lsn: int) -> Iterator[Transaction]:
    """The log in order. Transactions that left only tombstones are yielded without items, so that the reader knows how
    far it has read."""
    keys: list[bytes] = []
    at = b""
    for key, value in view.scan(layout.change_key(after_lsn + 1), layout.change_key(last_lsn + 1)):
        if key[1:9] != at:
            if at:
                yield _loaded(view, at, keys)
            at, keys = key[1:9], []
        if value[0] == ITEM_WRITTEN:
            keys.append(layout.ITEMS + key[-layout.RID_BYTES :])
    if at:
        yield _loaded(view, at, keys)


def transactions_of(view: View, epks: Sequence[bytes], after_lsn: int, last_lsn: int) -> Iterator[Transaction]:
    """The same for some logical partitions, found through their items: cheaper when these are few."""
    found: list[tuple[int, bytes, int, bytes]] = []
    for epk in epks:
        members = view.scan(layout.MEMBERS + epk, layout.prefix_end(layout.MEMBERS + epk))
        for stored in view.get_many([layout.ITEMS + key[-layout.RID_BYTES :] for key, _ in members]):
            assert stored is not None, "a member without its item"
            header = unpack_header(stored)
            if after_lsn < header.lsn <= last_lsn:
                found.append((header.lsn, epk, header.step, stored))
    found.sort(key=lambda each: each[:3])
    for lsn, items in groupby(found, key=lambda each: each[0]):
        yield Transaction(lsn, [each[3] for each in items])


def _loaded(view: View, lsn: bytes, keys: list[bytes]) -> Transaction:
    items = [stored for stored in view.get_many(keys) if stored is not None]
    assert len(items) == len(keys), "a change without its item"
    if len(items) > 1:
        # After a merge two transactions may share an lsn, with steps interleaved. Each has one partition key, and
        # theirs differ.
        items.sort(key=epk_of)
    return Transaction(int.from_bytes(lsn, "big"), items)


class LogTimes:
    """Finds the place of a time in a partition's log, so that a change feed with a start time need not read from the
    beginning. Clocks can be set back and a merge interleaves two logs, so times do not ascend with the lsn; but the
    latest time of all entries up to an lsn does. It is noted by readers of the log and stays an upper bound, because
    entries leave the log and are never inserted. It is kept in memory only."""

    def __init__(self, every: int = limits.LOG_TIMES_EVERY) -> None:
        self._lsns: list[int] = []
        self._latest_s: list[int] = []  # the latest time of all entries up to that lsn
        self._lsn = 0
        self._latest = 0  # the same up to the last noted entry
        self._every = every  # lsns between two marks

    def older_until(self, since_s: int) -> int:
        """The highest lsn known for which all entries up to it are older than this time."""
        if self._latest < since_s:
            return self._lsn
        mark = bisect_left(self._latest_s, since_s)
        return self._lsns[mark - 1] if mark else 0

    def noting(self, transactions: Iterable[Transaction], after_lsn: int) -> Iterator[Transaction]:
        """Pass transactions through and note their times. They must be all transactions after an lsn."""
        for lsn, items in transactions:
            if after_lsn <= self._lsn < lsn:
                latest_s = max([unpack_header(stored).ts for stored in items], default=0)
                self._note(lsn, latest_s)
            after_lsn = lsn
            yield Transaction(lsn, items)

    def _note(self, lsn: int, latest_s: int) -> None:
        self._lsn, self._latest = lsn, max(self._latest, latest_s)
        if lsn - (self._lsns[-1] if self._lsns else 0) < self._every:
            return
        self._lsns.append(lsn)
        self._latest_s.append(self._latest)
        if len(self._lsns) > limits.LOG_TIMES_MAX:
            del self._lsns[::2], self._latest_s[::2]
            self._every *= 2
