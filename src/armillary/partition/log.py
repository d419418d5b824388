"""A partition's history: the head (lsn and counters) and the change entries.

The lsn grows with every committed change and is never reused; session tokens and change-feed positions are places in
it. The changes space has one entry per item, at the lsn of its latest write, and one tombstone per delete. An entry
knows how far it lies behind the first one of its transaction, so that a feed never cuts a transaction in two.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from armillary.model import layout
from armillary.storage.engine import View

_HEAD = struct.Struct(">QQQQI")
_CHANGE = struct.Struct(">QBI")
_TOMBSTONE = struct.Struct(">IB")

ITEM_WRITTEN, ITEM_DELETED, ITEM_EXPIRED = 0, 1, 2


@dataclass(slots=True)
class Head:
    lsn: int
    next_number: int  # of the next item
    item_count: int
    size_bytes: int
    next_path: int

    def pack(self) -> bytes:
        return _HEAD.pack(self.lsn, self.next_number, self.item_count, self.size_bytes, self.next_path)


def load_head(view: View, first_number: int) -> Head:
    stored = view.get(layout.HEAD_KEY)
    if stored is None:
        return Head(0, first_number, 0, 0, 1)
    return Head(*_HEAD.unpack(stored))


class Change(NamedTuple):
    number: int  # of the item
    kind: int
    offset: int  # lsn minus the first lsn of the same transaction
    deleted_s: int
    epk: bytes
    item_id: str


def pack_written(number: int, offset: int) -> bytes:
    return _CHANGE.pack(number, ITEM_WRITTEN, offset)


def pack_tombstone(number: int, kind: int, offset: int, deleted_s: int, epk: bytes, item_id: str) -> bytes:
    return _CHANGE.pack(number, kind, offset) + _TOMBSTONE.pack(deleted_s, len(epk)) + epk + item_id.encode()


def unpack_change(value: bytes) -> Change:
    number, kind, offset = _CHANGE.unpack_from(value)
    if kind == ITEM_WRITTEN:
        return Change(number, kind, offset, 0, b"", "")
    deleted_s, epk_bytes = _TOMBSTONE.unpack_from(value, _CHANGE.size)
    start = _CHANGE.size + _TOMBSTONE.size
    return Change(
        number, kind, offset, deleted_s, value[start : start + epk_bytes], value[start + epk_bytes :].decode()
    )
