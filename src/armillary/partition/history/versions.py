"""All versions of a container's items, deleted ones included, for as long as its change feed policy says: every write
leaves an entry at the place of its change, and the stored bytes that it replaced stay as an image at theirs.

What an item became is read from its image, or from the item itself while nobody wrote it again: so creating costs a
few bytes, and nothing is stored twice. Entries go in order, each with the image of what it replaced. `Since` says from
where on none is missing. Pages and what they look like on the wire are others' business.
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

_ENTRY = struct.Struct(">BQQH")  # kind, when, lsn and step of what was there before; behind it the epk
_SINCE = struct.Struct(">QQ")
_LOADED_TOGETHER = 100  # entries whose images are looked up in one go


class Entry(NamedTuple):
    place: bytes  # lsn, step and number
    kind: int
    changed_s: int
    before_lsn: int  # 0: there was nothing
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
        """Where the item is, as it became, once it was written again."""
        return layout.IMAGES + self.place

    @property
    def before(self) -> bytes:
        """The place of what was there before."""
        return (self.before_lsn << 16 | self.before_step).to_bytes(10, "big") + self.place[10:]

    @property
    def before_key(self) -> bytes | None:
        """Where the item is, as it was before."""
        return None if self.kind == CREATED else layout.IMAGES + self.before


class Version(NamedTuple):
    entry: Entry
    current: bytes | None  # as stored; None: it was deleted
    previous: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.current or b"") + len(self.previous or b"")


class Since(NamedTuple):
    """How far back versions go: to behind an lsn. They may have been kept before, with a gap: that has another
    number, and does not count."""

    number: int
    lsn: int

    def pack(self) -> bytes:
        return _SINCE.pack(*self)


# Writing.


def put_version(
    txn: Txn, kind: int, changed_s: int, place: tuple[int, int, int], epk: bytes, stored: bytes | None
) -> None:
    """Note what a transaction does to an item at a place; `stored` is the item as it was before."""
    lsn, step, number = place
    before_lsn = before_step = 0
    if stored is not None:
        before = unpack_header(stored)
        before_lsn, before_step = before.lsn, before.step
        txn.put(layout.IMAGES + layout.version_key(before_lsn, before_step, number)[1:], stored)
    txn.put(layout.version_key(lsn, step, number), _ENTRY.pack(kind, changed_s, before_lsn, before_step) + epk)


def begin(txn: Txn, number: int, lsn: int) -> None:
    """Versions are kept from now on. Of a partition that nothing was ever written to, none is missing."""
    is_new = txn.get(layout.HEAD_KEY) is None
    txn.put(SINCE_KEY, Since(number, 0 if is_new else lsn).pack())


def clear(txn: Txn) -> None:
    """Versions are no longer kept."""
    txn.delete(SINCE_KEY)
    for space in (layout.VERSIONS, layout.IMAGES):
        txn.delete_range(space, layout.space_end(space))


def forget(txn: Txn, old: Sequence[Entry], number: int) -> None:
    """Drop entries, the oldest there are, with what they replaced."""
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
    """Which keeping of versions has begun, 0: none, or it has ended."""
    stored = view.get(SINCE_KEY)
    return _SINCE.unpack(stored)[0] if stored is not None else 0


def since(view: View, number: int) -> int | None:
    """Every version after this lsn is there; None: this keeping of versions has not begun."""
    stored = view.get(SINCE_KEY)
    if stored is None:
        return None
    known = Since(*_SINCE.unpack(stored))
    return known.lsn if known.number == number else None


def too_old(view: View, number: int, oldest_s: float, most: int) -> list[Entry]:
    """The next entries that are no longer kept: by their age, or because there is a gap behind them."""
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
    """What each transaction did, in order. After a merge, two of one lsn come one after the other. Those that did
    nothing that is wanted come without versions: whoever reads must know how far it was looked."""
    scanned = view.scan(layout.version_key(after_lsn + 1), layout.version_key(last_lsn + 1))
    waiting: list[tuple[int, list[Entry]]] = []
    count = 0
    for packed_lsn, grouped in groupby(scanned, key=lambda pair: pair[0][1:9]):
        together = [unpack_entry(key, value) for key, value in grouped]
        if is_wanted is not None:
            together = [entry for entry in together if is_wanted(entry)]
        if len(together) > 1:
            together.sort(key=lambda entry: entry.epk)  # each key's stay in their order
        waiting.append((int.from_bytes(packed_lsn, "big"), together))
        count += max(1, len(together))
        if count >= _LOADED_TOGETHER:
            yield from _loaded(view, waiting)
            waiting, count = [], 0
    yield from _loaded(view, waiting)


def _loaded(view: View, groups: Sequence[tuple[int, list[Entry]]]) -> Iterator[tuple[int, list[Version]]]:
    """Most versions are of items that nobody wrote again; of the others there are images."""
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
    """An entry as it is stored, with what it replaced."""

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
    """Whose an entry of either space is."""
    return epk_of(pair[1]) if pair[0][:1] == layout.IMAGES else pair[1][_ENTRY.size :]


def begin_from(txn: Txn, number: int, lsn: int, parents: Sequence[int | None]) -> None:
    """Versions of a child go back as far as those of all its parents do; where one lacks them, to now. If none are to
    be kept any more, what was copied goes."""
    if number:
        known = [each for each in parents if each is not None]
        txn.put(SINCE_KEY, Since(number, max(known) if len(known) == len(parents) else lsn).pack())
    elif next(txn.scan(layout.VERSIONS, layout.space_end(layout.IMAGES)), None) is not None:
        clear(txn)
