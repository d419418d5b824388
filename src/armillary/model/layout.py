"""The keys of a partition's store: one leading byte names the space, integers are big-endian, so that byte order is
numeric order. Everything that reads or writes a partition's bytes builds its keys here. The values of the sizes space
are defined here too; items and their headers are in `encoding.py`.

| space   | key                               | value                         | for                                    |
|---------|-----------------------------------|-------------------------------|----------------------------------------|
| items   | rid                               | header + the item as answered | reading an item never parses it        |
| ids     | epk + id                          | rid                           | the primary key                        |
| members | epk + rid                         | -                             | a logical partition in insertion order |
| terms   | path number + encoded value + rid | -                             | the index                              |
| changes | lsn + step in transaction + rid   | kind, tombstone of a delete   | the change feed                        |
| unique  | epk + constraint number + values  | rid                           | unique keys, per logical partition     |
| expiry  | time + rid                        | -                             | TTL                                    |
| sizes   | epk                               | count, bytes, partition key   | limits and storage pictures            |
| records | session + number + statement      | time, answers                 | writes that may be sent again          |
| events  | lsn + step in transaction + rid   | what was done to a document   | change streams of watched collections  |
| versions| lsn + step in transaction + rid   | what a write did to an item   | the change feed of all versions        |
| images  | lsn + step in transaction + rid   | an item as it was stored then | the same: versions that were replaced  |
| meta    | name                              | ...                           | head (lsn, counters), path dictionary  |

An effective partition key (epk) is prefix-free inside one container (fixed length for hash V2 and MultiHash, self-
delimiting for V1), so `epk + id` needs no separator. The rid in a change's key keeps two logs apart that a merge brings
together: their lsns overlap, and neither may change, since etags are made of them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from armillary import limits

ITEMS, IDS, MEMBERS, TERMS, CHANGES, UNIQUE, EXPIRY, SIZES, META = b"i", b"k", b"l", b"t", b"c", b"u", b"e", b"s", b"m"
RECORDS = b"r"
EVENTS = b"v"
VERSIONS, IMAGES = b"w", b"x"

RID_BYTES = 8
PATH_BYTES = 4
STEPS_MAX = limits.TRANSACTION_CHANGES_MAX  # two bytes of a key


def space_end(space: bytes) -> bytes:
    """The first key after a space."""
    return bytes([space[0] + 1])


def item_key(rid: int) -> bytes:
    return ITEMS + rid.to_bytes(8, "big")


def id_key(epk: bytes, item_id: str) -> bytes:
    return IDS + epk + item_id.encode()


def member_key(epk: bytes, rid: int) -> bytes:
    return MEMBERS + epk + rid.to_bytes(8, "big")


def term_prefix(path_number: int) -> bytes:
    return TERMS + path_number.to_bytes(4, "big")


def term_key(path_number: int, term: bytes, rid: int) -> bytes:
    return TERMS + path_number.to_bytes(4, "big") + term + rid.to_bytes(8, "big")


def change_key(lsn: int, step: int = 0, rid: int = 0) -> bytes:
    return CHANGES + (lsn << 80 | step << 64 | rid).to_bytes(18, "big")


def event_key(lsn: int, step: int = 0, rid: int = 0) -> bytes:
    return EVENTS + (lsn << 80 | step << 64 | rid).to_bytes(18, "big")


def version_key(lsn: int, step: int = 0, rid: int = 0) -> bytes:
    return VERSIONS + (lsn << 80 | step << 64 | rid).to_bytes(18, "big")


def unique_key(epk: bytes, constraint_number: int, values: bytes) -> bytes:
    return UNIQUE + epk + constraint_number.to_bytes(1, "big") + values


def expiry_key(expires_s: int, rid: int) -> bytes:
    return EXPIRY + expires_s.to_bytes(8, "big") + rid.to_bytes(8, "big")


def size_key(epk: bytes) -> bytes:
    return SIZES + epk


HEAD_KEY = META + b"head"


def path_key(path: str) -> bytes:
    """The key that holds the number of an index path."""
    return META + b"path/" + path.encode()


def prefix_end(prefix: bytes) -> bytes:
    """The smallest key that is greater than every key beginning with `prefix` (which is not all 0xFF)."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1])


_SIZE = struct.Struct(">QQ")


class LogicalSize(NamedTuple):
    """The size of a logical partition, updated with every write."""

    item_count: int
    size_bytes: int
    key_text: str  # the partition key of its first item in its header form, e.g. ["LAX"]


def pack_size(size: LogicalSize) -> bytes:
    return _SIZE.pack(size.item_count, size.size_bytes) + size.key_text.encode()


def grown(value: bytes, items_added: int, bytes_added: int) -> tuple[int, int, bytes]:
    """Add to a packed size: the new count and bytes, and the value to store."""
    item_count, size_bytes = _SIZE.unpack_from(value)
    item_count += items_added
    size_bytes += bytes_added
    return item_count, size_bytes, _SIZE.pack(item_count, size_bytes) + value[_SIZE.size :]


def unpack_size(value: bytes) -> LogicalSize:
    item_count, size_bytes = _SIZE.unpack_from(value)
    return LogicalSize(item_count, size_bytes, value[_SIZE.size :].decode())
