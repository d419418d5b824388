"""Rows of the replicated log: what one group commit wrote, in a form that every node applies alike.

A group is physical: the ranges that were cleared, then keys with their values, each key with the prefix of its store.
Applying it reads nothing. It is one row, or several that are appended by one statement and applied together
(`is_last`). Every row carries a hash over the row before it (`chain`), so a position in the log names everything up to
it. The formats here are stored and sent between nodes: a node that meets a format it does not know stops.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from armillary import work
from armillary.errors import Failure, Kind
from armillary.limits import LOG_ROW_BYTES_MAX
from armillary.storage.overlay import Layer
from armillary.storage.redo import decoded, encoded

CHAIN_BYTES: Final = 16
GENERATION_BYTES: Final = 16
NO_CHAIN: Final = bytes(CHAIN_BYTES)  # before the first row

_FORMAT: Final = 1
_PLACE: Final = struct.Struct(f">QQ{CHAIN_BYTES}s")
_HEADER: Final = struct.Struct(f">QQ{CHAIN_BYTES}sQQ{CHAIN_BYTES}sQQBB")
_LENGTH: Final = struct.Struct(">I")
_LINK: Final = struct.Struct(">QQQQBB")
_GROUP: Final = struct.Struct(">BII")
_ENTRY_BYTES: Final = 8  # what the encoding adds to a key and its value
_ENTRY_UNITS: Final = 10  # of work, to encode or decode one


class Place(NamedTuple):
    """A position in the log: a row, and by its chain all rows before it."""

    epoch: int
    seq: int
    chain: bytes

    def pack(self) -> bytes:
        return _PLACE.pack(*self)

    @classmethod
    def unpack(cls, packed: bytes) -> Place:
        return cls(*_PLACE.unpack(packed))


START: Final = Place(0, 0, NO_CHAIN)  # below the first row, which has seq 1


class RowKind(IntEnum):
    FENCE = 1  # the first row of an epoch: no row of an earlier epoch can follow it
    GROUP = 2  # transactions
    EMPTY = 3  # writes nothing: appended to confirm that the leader still leads
    MARK = 4  # the place at which every node digests its state (`armillary cluster verify`)


class Row(NamedTuple):
    epoch: int
    seq: int  # without gaps
    chain: bytes  # over the chain of the row before and all other fields but `confirmed`
    confirmed: Place  # the newest row that the leader knew to be acknowledged when it appended this one
    time_us: int  # the leader's clock, later than in the group before, and never less than in the row before
    transactions: int  # up to this row since the log began
    kind: RowKind
    is_last: bool  # of the rows that are applied together
    data: bytes

    @property
    def place(self) -> Place:
        return Place(self.epoch, self.seq, self.chain)

    def follows(self, place: Place) -> bool:
        """Whether this is the row right after a place."""
        return self.seq == place.seq + 1 and self.chain == chain_of(
            place.chain, self.epoch, self.seq, self.time_us, self.transactions, self.kind, self.is_last, self.data
        )

    def pack(self) -> bytes:
        place, confirmed = self[:3], self.confirmed
        return _HEADER.pack(*place, *confirmed, self.time_us, self.transactions, self.kind, self.is_last) + self.data

    @classmethod
    def unpack(cls, packed: bytes) -> Row:
        if len(packed) < _HEADER.size:
            raise unreadable("it is cut off")
        epoch, seq, chain, c_epoch, c_seq, c_chain, time_us, transactions, kind, last = _HEADER.unpack_from(packed)
        confirmed, data = Place(c_epoch, c_seq, c_chain), packed[_HEADER.size :]
        return cls(epoch, seq, chain, confirmed, time_us, transactions, kind_of(kind), bool(last), data)


def pack_rows(rows: Sequence[Row]) -> bytes:
    """Rows to be sent to another node."""
    return b"".join(piece for packed in map(Row.pack, rows) for piece in (_LENGTH.pack(len(packed)), packed))


def unpack_rows(packed: bytes) -> list[Row]:
    rows = []
    at = 0
    while at < len(packed):
        end = at + _LENGTH.size + (_LENGTH.unpack_from(packed, at)[0] if at + _LENGTH.size <= len(packed) else 0)
        rows.append(Row.unpack(packed[at + _LENGTH.size : end]))
        at = end
    return rows


def chain_of(
    before: bytes, epoch: int, seq: int, time_us: int, transactions: int, kind: int, is_last: bool, data: bytes
) -> bytes:
    digest = blake2b(before, digest_size=CHAIN_BYTES)
    digest.update(_LINK.pack(epoch, seq, time_us, transactions, kind, is_last))
    digest.update(data)
    return digest.digest()


def new_row(
    after: Place,
    epoch: int,
    kind: RowKind,
    *,
    confirmed: Place,
    time_us: int,
    transactions: int,
    is_last: bool,
    data: bytes,
) -> Row:
    seq = after.seq + 1
    chain = chain_of(after.chain, epoch, seq, time_us, transactions, kind, is_last, data)
    return Row(epoch, seq, chain, confirmed, time_us, transactions, kind, is_last, data)


def origin_row(place: Place, *, time_us: int, transactions: int) -> Row:
    """The first row of a log that continues from a state: it stands for everything that the state holds. It has a chain
    that was drawn, and a seq above 1, so that an empty replica cannot take itself for one that may follow."""
    assert place.seq > 1
    return Row(place.epoch, place.seq, place.chain, place, time_us, transactions, RowKind.EMPTY, True, b"")


def group_rows(
    layer: Layer, *, after: Place, epoch: int, confirmed: Place, time_us: int, transactions: int, notes: bytes = b""
) -> list[Row]:
    """The rows of one group."""
    rows: list[Row] = []
    pieces = list(_pieces(layer, notes))
    for number, data in enumerate(pieces, 1):
        after = rows[-1].place if rows else after
        is_last = number == len(pieces)
        kind = RowKind.GROUP
        row = new_row(
            after,
            epoch,
            kind,
            confirmed=confirmed,
            time_us=time_us,
            transactions=transactions,
            is_last=is_last,
            data=data,
        )
        rows.append(row)
    return rows


def read_group(rows: Sequence[Row]) -> tuple[Layer, bytes]:
    """What the rows of one group write, and the notes beside it."""
    layer, notes = Layer(), b""
    for row in rows:
        if row.kind is not RowKind.GROUP:
            continue
        cleared, writes, piece_notes = _read_piece(row.data)
        work.spend(_ENTRY_UNITS * len(writes))
        for low, high in cleared:
            layer.clear(low, high)
        layer.writes.update(writes)
        layer.has_deletes = layer.has_deletes or any(value is None for _, value in writes)
        notes += piece_notes
    return layer, notes


def _pieces(layer: Layer, notes: bytes) -> Iterator[bytes]:
    cleared = encoded(layer.cleared)
    entries: list[tuple[bytes, bytes | None]] = []
    size_bytes = 0
    for key, value in layer.writes.items():
        size_bytes += _ENTRY_BYTES + len(key) + (len(value) if value is not None else 0)
        if size_bytes > LOG_ROW_BYTES_MAX and entries:
            work.spend(_ENTRY_UNITS * len(entries))
            yield _GROUP.pack(_FORMAT, len(cleared), len(notes)) + cleared + notes + encoded(entries)
            cleared, notes, entries = encoded(()), b"", []
            size_bytes = _ENTRY_BYTES + len(key) + (len(value) if value is not None else 0)
        entries.append((key, value))
    work.spend(_ENTRY_UNITS * len(entries))
    yield _GROUP.pack(_FORMAT, len(cleared), len(notes)) + cleared + notes + encoded(entries)


def _read_piece(
    data: bytes,
) -> tuple[list[tuple[bytes, bytes]], Sequence[tuple[bytes, bytes | None]], bytes]:
    if len(data) < _GROUP.size:
        raise unreadable("it is cut off")
    version, cleared_bytes, notes_bytes = _GROUP.unpack_from(data)
    if version != _FORMAT:
        raise unreadable(f"it has format {version}")
    at = _GROUP.size + cleared_bytes
    try:
        cleared = [(low, high) for low, high in decoded(data[_GROUP.size : at]) if high is not None]
        return cleared, decoded(data[at + notes_bytes :]), data[at : at + notes_bytes]
    except struct.error:
        raise unreadable("it is cut off") from None


def kind_of(number: int) -> RowKind:
    try:
        return RowKind(number)
    except ValueError:
        raise unreadable(f"it is of kind {number}") from None


def unreadable(reason: str) -> Failure:
    return Failure(
        Kind.UNSUPPORTED,
        f"A row of the replicated log cannot be read by this version of Armillary: {reason}. Upgrade this node.",
    )
