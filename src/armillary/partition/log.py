"""A partition's history: the head (lsn and counters) and the change entries.

The lsn grows by one with every committed transaction and is never reused; session tokens and change-feed positions are
places in it. The changes space has one entry per item, at the lsn of its latest write, and one tombstone per delete;
the changes of one transaction share its lsn and are told apart by their step, so a feed can keep them together. The
item's number ends the key: after a merge two transactions, of either parent, may have one lsn.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from armillary.model import layout
from armillary.storage.engine import View

_HEAD = struct.Struct(">QQQQI")
_TOMBSTONE = struct.Struct(">BIB")  # kind, when, bytes of the epk

ITEM_WRITTEN, ITEM_DELETED, ITEM_EXPIRED = 0, 1, 2
WRITTEN = bytes([ITEM_WRITTEN])  # the entry of an item that exists: its key says all


@dataclass(slots=True)
class Head:
    lsn: int
    next_number: int  # of the next item
    item_count: int
    size_bytes: int
    next_path: int

    def pack(self) -> bytes:
        return _HEAD.pack(self.lsn, self.next_number, self.item_count, self.size_bytes, self.next_path)


def new_head(first_number: int, first_lsn: int) -> Head:
    """Of a partition that nothing was written to."""
    return Head(first_lsn, first_number, 0, 0, 1)


def load_head(view: View, first_number: int, first_lsn: int) -> Head:
    stored = view.get(layout.HEAD_KEY)
    if stored is None:
        return new_head(first_number, first_lsn)
    return Head(*_HEAD.unpack(stored))


class Change(NamedTuple):
    number: int  # of the item
    kind: int
    deleted_s: int
    epk: bytes
    item_id: str


def pack_tombstone(kind: int, deleted_s: int, epk: bytes, item_id: str) -> bytes:
    return _TOMBSTONE.pack(kind, deleted_s, len(epk)) + epk + item_id.encode()


def unpack_change(key: bytes, value: bytes) -> Change:
    number = int.from_bytes(key[-layout.RID_BYTES :], "big")
    if value[0] == ITEM_WRITTEN:
        return Change(number, ITEM_WRITTEN, 0, b"", "")
    kind, deleted_s, epk_bytes = _TOMBSTONE.unpack_from(value)
    start = _TOMBSTONE.size
    return Change(number, kind, deleted_s, value[start : start + epk_bytes], value[start + epk_bytes :].decode())


def change_lsn(key: bytes) -> int:
    """The lsn of an entry of the changes space."""
    return int.from_bytes(key[1:9], "big")
