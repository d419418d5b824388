"""All versions of a container's items, deletes included, for the retention time of its change feed policy. Every write
leaves a version entry at the place of its change, and the stored bytes that it replaced remain as an image at the place
of the write that made them.

The current state of an item is read from the item itself until it is written again, then from its image: so a create
costs a few bytes, and nothing is stored twice. Entries are dropped oldest first, each with the image that it replaced.
`Since` records from which lsn on versions are complete. Paging and the wire format are left to `account/changes` and
the doors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from armillary.model import layout
from armillary.model.encoding import epk_of, place_of, unpack_header
from armillary.storage.engine import Txn, View

CREATED, REPLACED, DELETED, EXPIRED = 0, 1, 2, 3
SINCE_KEY = layout.META + b"versions"

_ENTRY = struct.Struct(">BQQH")  # kind, time, lsn and step of the previous version; then the epk
_SINCE = struct.Struct(">QQ")
_LOADED_TOGETHER = 100  # entries whose images are looked up together


class Entry(NamedTuple):
    place: bytes  # lsn, step and rid
    kind: int
    changed_s: int
    before_lsn: int  # 0: there was no previous version
    before_step: int
    epk: bytes

    @property
    def lsn(self) -> int:
        return int.from_bytes(self.place[:8], "big")

    @property
    def is_write(self) -> bool:
        return self.kind <= REPLACED

    @property
    def image_key(self) -> bytes:
        """Where the item's state after this change is stored, once it was written again."""
        return layout.IMAGES + self.place

    @property
    def before(self) -> bytes:
        """The place of the previous version."""
        return (self.before_lsn << 16 | self.before_step).to_bytes(10, "big") + self.place[10:]

    @property
    def before_key(self) -> bytes | None:
        """Where the item's state before this change is stored."""
        return None if self.kind == CREATED else layout.IMAGES + self.before


class Version(NamedTuple):
    entry: Entry
    current: bytes | None  # as stored; None: deleted
    previous: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.current or b"") + len(self.previous or b"")


class Since(NamedTuple):
    """From which lsn on versions are complete. Each period of keeping versions has a number; entries of an earlier
    period, which are followed by a gap, do not count."""

    number: int
    lsn: int

    def pack(self) -> bytes:
        return _SINCE.pack(*self)


# Writing.


def put_version(
    txn: Txn, kind: int, changed_s: int, place: tuple[int, int, int], epk: bytes, stored: bytes | None
) -> None:
    """Store the version entry of a change at a place; `stored` is the item before it."""
    lsn, step, rid = place
    before_lsn = before_step = 0
    if stored is not None:
        before = unpack_header(stored)
        before_lsn, before_step = before.lsn, before.step
        txn.put(layout.IMAGES + layout.version_key(before_lsn, before_step, rid)[1:], stored)
    txn.put(layout.version_key(lsn, step, rid), _ENTRY.pack(kind, changed_s, before_lsn, before_step) + epk)


def begin(txn: Txn, number: int, lsn: int) -> None:
    """Start keeping versions. In a partition that was never written to, none is missing."""
    is_new = txn.get(layout.HEAD_KEY) is None
    txn.put(SINCE_KEY, Since(number, 0 if is_new else lsn).pack())


def clear(txn: Txn) -> None:
    """Stop keeping versions."""
    txn.delete(SINCE_KEY)
    for space in (layout.VERSIONS, layout.IMAGES):
        txn.delete_range(space, layout.space_end(space))


def forget(txn: Txn, old: Sequence[Entry], number: int) -> None:
    """Drop the oldest entries, with the images that they replaced."""
    for entry in old:
        txn.delete(layout.VERSIONS + entry.place)
        if entry.before_key is not None:
            txn.delete(entry.before_key)
    known = since(txn, number)
    if known is not None and old[-1].lsn > known:
        txn.put(SINCE_KEY, Since(number, old[-1].lsn).pack())


# Reading.


def unpack_entry(key: bytes, value: bytes) -> Entry:
    kind, changed_s, before_lsn, before_step = _ENTRY.unpack_from(value)
    return Entry(key[1:], kind, changed_s, before_lsn, before_step, value[_ENTRY.size :])


def begun_number(view: View) -> int:
    """The number of the period of keeping versions that has begun; 0: none, or it has ended."""
    stored = view.get(SINCE_KEY)
    return _SINCE.unpack(stored)[0] if stored is not None else 0


def since(view: View, number: int) -> int | None:
    """The lsn after which every version is there; None: this period has not begun."""
    stored = view.get(SINCE_KEY)
    if stored is None:
        return None
    known = Since(*_SINCE.unpack(stored))
    return known.lsn if known.number == number else None


def too_old(view: View, number: int, oldest_s: float, most: int) -> list[Entry]:
    """The next entries to drop: older than the retention time, or followed by a gap."""
    known = since(view, number)
    old: list[Entry] = []
    for key, value in islice(view.scan(layout.VERSIONS, layout.space_end(layout.VERSIONS)), most):
        entry = unpack_entry(key, value)
        if entry.changed_s >= oldest_s and (known is None or entry.lsn > known):
            break
        old.append(entry)
    return old


def transactions(
    view: View, after_lsn: int, last_lsn: int, is_wanted: Callable[[Entry], bool] | None = None
) -> Iterator[tuple[int, list[Version]]]:
    """The changes of each transaction, in order. After a merge, two transactions with the same lsn follow each other. A
    transaction with no wanted change is yielded without versions, so that the reader knows how far it has read."""
    scanned = view.scan(layout.version_key(after_lsn + 1), layout.version_key(last_lsn + 1))
    waiting: list[tuple[int, list[Entry]]] = []
    count = 0
    for packed_lsn, grouped in groupby(scanned, key=lambda pair: pair[0][1:9]):
        together = [unpack_entry(key, value) for key, value in grouped]
        if is_wanted is not None:
            together = [entry for entry in together if is_wanted(entry)]
        if len(together) > 1:
            together.sort(key=lambda entry: entry.epk)  # stable: each key's entries stay in order
        waiting.append((int.from_bytes(packed_lsn, "big"), together))
        count += max(1, len(together))
        if count >= _LOADED_TOGETHER:
            yield from _loaded(view, waiting)
            waiting, count = [], 0
    yield from _loaded(view, waiting)


def _loaded(view: View, groups: Sequence[tuple[int, list[Entry]]]) -> Iterator[tuple[int, list[Version]]]:
    """Load the items that entries refer to. Most were not written again since; the others have images."""
    entries = [entry for _, group in groups for entry in group]
    rids = list({entry.place[10:]: None for entry in entries if entry.kind <= REPLACED})
    items = dict(zip(rids, view.get_many([layout.ITEMS + rid for rid in rids]), strict=True))
    found: dict[bytes, bytes] = {}  # by place
    wanted: dict[bytes, None] = {}
    for entry in entries:
        place = entry.place
        if entry.kind <= REPLACED:
            stored = items[place[10:]]
            if stored is not None and place_of(stored) == place[:10]:
                found[place] = stored
            else:
                wanted[place] = None
        if entry.kind != CREATED:
            wanted[entry.before] = None
    images = view.get_many([layout.IMAGES + place for place in wanted])
    for place, image in zip(wanted, images, strict=True):
        assert image is not None, "a version that is nowhere"
        found[place] = image
    for lsn, group in groups:
        yield (
            lsn,
            [
                Version(
                    entry,
                    found[entry.place] if entry.kind <= REPLACED else None,
                    found[entry.before] if entry.kind != CREATED else None,
                )
                for entry in group
            ],
        )


# Taking over what a parent kept.


class Packed(NamedTuple):
    """A stored entry with the image that it replaced."""

    key: bytes
    value: bytes
    before_key: bytes | None
    before: bytes | None

    @property
    def epk(self) -> bytes:
        return self.value[_ENTRY.size :]


def entries_from(view: View, start: bytes, entries_max: int, size_bytes_max: int) -> list[Packed]:
    """The next entries from a key on."""
    found: list[Packed] = []
    size_bytes = 0
    for key, value in islice(view.scan(start, layout.space_end(layout.VERSIONS)), entries_max):
        before_key = unpack_entry(key, value).before_key
        before = view.get(before_key) if before_key is not None else None
        found.append(Packed(key, value, before_key, before))
        size_bytes += len(before or b"")
        if size_bytes > size_bytes_max:
            break
    return found


def put_packed(txn: Txn, taken: Packed) -> None:
    txn.put(taken.key, taken.value)
    if taken.before_key is not None and taken.before is not None:
        txn.put(taken.before_key, taken.before)


def owner_epk(pair: tuple[bytes, bytes]) -> bytes:
    """The effective partition key of an entry of either space."""
    return epk_of(pair[1]) if pair[0][:1] == layout.IMAGES else pair[1][_ENTRY.size :]


def begin_from(txn: Txn, number: int, lsn: int, parents: Sequence[int | None]) -> None:
    """A child has the versions that all its parents have; if one parent has none, from now on. If versions are no
    longer kept, those that were copied are dropped."""
    if number:
        known = [each for each in parents if each is not None]
        txn.put(SINCE_KEY, Since(number, max(known) if len(known) == len(parents) else lsn).pack())
    elif next(txn.scan(layout.VERSIONS, layout.space_end(layout.IMAGES)), None) is not None:
        clear(txn)
