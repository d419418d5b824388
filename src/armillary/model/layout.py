"""The keys of a partition's store: one leading byte names the space, integers are big-endian, so that byte order is
numeric order. Everything that reads or writes a partition's bytes builds its keys here.

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
